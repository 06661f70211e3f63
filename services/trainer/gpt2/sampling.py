"""Draws the next token from logits and random numbers. It uses no model.

Shapes: R rows, V the vocabulary.
"""

from dataclasses import dataclass

import torch

from rookery.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature 0 takes the likeliest token. `top_k` 0 and `top_p` 1 cut nothing off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature < 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise InvalidInput(f"{self}: temperature and top_k must not be negative, top_p in (0, 1]")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0


def log_distribution(logits_RV: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities of the distribution that is drawn from, in float32; -inf where it is cut off.

    Cuts as vLLM and transformers do: temperature, then the `top_k` likeliest, then of those the fewest
    whose probabilities add up to `top_p`. Greedy ones are those of the model itself.
    """
    logits_RV = logits_RV.float()
    if sampling.greedy:
        return logits_RV.log_softmax(-1)
    logits_RV = logits_RV / sampling.temperature
    if 0 < sampling.top_k < logits_RV.shape[-1]:
        least_R1 = logits_RV.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, -torch.inf)
    if sampling.top_p < 1:
        sorted_RV, order_RV = logits_RV.sort(dim=-1, descending=True)
        shares_RV = sorted_RV.softmax(-1)
        # A token stays while those before it have not reached top_p yet: the first one always does.
        beyond_RV = shares_RV.cumsum(-1) - shares_RV >= sampling.top_p
        cut_RV = torch.zeros_like(beyond_RV).scatter(-1, order_RV, beyond_RV)
        logits_RV = logits_RV.masked_fill(cut_RV, -torch.inf)
    return logits_RV.log_softmax(-1)


def draw(logs_RV: torch.Tensor, uniforms_R: torch.Tensor, *, greedy: bool) -> torch.Tensor:
    """The token of each row, [R]: the likeliest, or where the cumulative probability passes the uniform."""
    if greedy:
        return logs_RV.argmax(-1)
    cumulative_RV = logs_RV.exp().cumsum(-1)
    # Of float32 the sum is not quite 1: drawn within what there is, no impossible token is ever met.
    wanted_R1 = uniforms_R.to(logs_RV.dtype)[:, None] * cumulative_RV[:, -1:]
    found_R = torch.searchsorted(cumulative_RV, wanted_R1, right=True)[:, 0]
    last_R = (logs_RV > -torch.inf).long().cumsum(-1).argmax(-1)
    return torch.minimum(found_R, last_R)
