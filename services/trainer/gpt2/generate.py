"""Samples completions of prompts: in a batch, with a KV cache and a seed per row.

Works on token ids, without a tokenizer. A row's tokens depend on its prompt and its seed, not on the other
rows (up to float error in the logits).

Shapes: B prompts, R rows, T tokens, V the vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import torch

from rookery.errors import InvalidInput
from rookery.trace import Sampling
from services.trainer.gpt2.model import Cache, Gpt2, padded_causal_mask, positions


@dataclass(slots=True)
class Generated:
    """One completion. `logprobs` are the log-probabilities of its tokens under the sampled distribution."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    """Whether it ends with a stop token; otherwise it was cut at the token limit."""


@torch.inference_mode()  # type: ignore[untyped-decorator]
def generate(
    model: Gpt2,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling,
    count: int = 1,
    stop: Collection[int] = (),
    seed: int = 0,
) -> list[list[Generated]]:
    """Returns `count` completions of each prompt. Completion i of prompt p uses seed `seed + p * count + i`.

    A prompt is computed once for all its completions. Rows that have stopped are removed from the batch.
    Temperature 0 is greedy decoding. `top_k` 0 and `top_p` 1 exclude no token. Raises `InvalidInput` if there
    is no prompt, or one is empty or, with `max_tokens`, too long for the model.
    """
    max_tokens, greedy = sampling.max_tokens, sampling.temperature == 0
    _check_lengths(model, prompts, max_tokens)
    device = model.wte.weight.device
    ids_BT, present_BT = _pad(prompts, device)
    complete = bool(present_BT.all())
    cache = Cache.empty(
        model.config,
        rows=len(prompts),
        capacity=ids_BT.shape[1] + max_tokens,
        dtype=model.wte.weight.dtype,
        device=device,
    )
    hidden_BTD = model.hidden(
        ids_BT,
        position_ids_BT=positions(present_BT),
        mask=None if complete else padded_causal_mask(present_BT),
        cache=cache,
    )
    logits_BV = model.lm_head(hidden_BTD[:, -1])
    every_R = torch.arange(len(prompts), device=device).repeat_interleave(count)
    rows = _Rows(
        results=[Generated() for _ in every_R],
        cache=cache.select(every_R) if count > 1 else cache,
        padded_RS=None if complete else present_BT[every_R].bool(),
        next_R=present_BT.sum(-1)[every_R],
        uniforms_RM=_uniforms(len(every_R), max_tokens, seed, device),
        alive=list(range(len(every_R))),
    )
    logits_RV = logits_BV[every_R]
    for step in range(max_tokens):
        logs_RV = log_distribution(logits_RV, sampling)
        tokens_R = draw(logs_RV, rows.uniforms_RM[:, step], greedy=greedy)
        drawn_R = logs_RV.gather(-1, tokens_R[:, None])[:, 0]
        unfinished_N = rows.append(tokens_R, drawn_R, stop)
        if not len(unfinished_N) or step + 1 == max_tokens:
            break
        if len(unfinished_N) < len(tokens_R):
            rows, tokens_R = rows.keep(unfinished_N), tokens_R[unfinished_N]
        logits_RV = _advance(model, rows, tokens_R)
    return [rows.results[start : start + count] for start in range(0, len(rows.results), count)]


@dataclass(slots=True)
class _Rows:
    """The R unfinished rows. S slots of the cache are filled, and each row has M random numbers."""

    results: list[Generated]
    cache: Cache
    padded_RS: torch.Tensor | None
    next_R: torch.Tensor
    uniforms_RM: torch.Tensor
    alive: list[int]

    def append(self, tokens_R: torch.Tensor, logs_R: torch.Tensor, stop: Collection[int]) -> torch.Tensor:
        """Records the tokens and returns the indices of the rows that continue."""
        unfinished = []
        for row, (token, log) in enumerate(zip(tokens_R.tolist(), logs_R.tolist(), strict=True)):
            result = self.results[self.alive[row]]
            result.token_ids.append(token)
            result.logprobs.append(log)
            result.stopped = token in stop
            if not result.stopped:
                unfinished.append(row)
        return torch.tensor(unfinished, dtype=torch.long, device=tokens_R.device)

    def keep(self, rows_N: torch.Tensor) -> "_Rows":
        """Returns only these rows."""
        return replace(
            self,
            cache=self.cache.select(rows_N),
            padded_RS=None if self.padded_RS is None else self.padded_RS[rows_N],
            next_R=self.next_R[rows_N],
            uniforms_RM=self.uniforms_RM[rows_N],
            alive=[self.alive[row] for row in rows_N.tolist()],
        )


def _advance(model: Gpt2, rows: _Rows, tokens_R: torch.Tensor) -> torch.Tensor:
    """Returns the logits after one more token in each row, [R, V]."""
    mask_R11S = None
    if rows.padded_RS is not None:
        present_R1 = torch.ones_like(rows.padded_RS[:, :1])
        rows.padded_RS = torch.cat([rows.padded_RS, present_R1], dim=1)
        mask_R11S = rows.padded_RS[:, None, None, :]
    hidden_R1D = model.hidden(
        tokens_R[:, None], position_ids_BT=rows.next_R[:, None], mask=mask_R11S, cache=rows.cache
    )
    rows.next_R = rows.next_R + 1
    return model.lm_head(hidden_R1D[:, 0])


def _check_lengths(model: Gpt2, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
    if max_tokens < 1 or not prompts:
        raise InvalidInput(f"{max_tokens} tokens for {len(prompts)} prompts: nothing to do")
    room = model.config.max_position_embeddings - max_tokens
    for number, prompt in enumerate(prompts):
        if not 0 < len(prompt) <= room:
            raise InvalidInput(
                f"prompt {number} has {len(prompt)} tokens; with {max_tokens} more, 1 to {room} fit"
            )


def _pad(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns ids, and 1 where they are not padding, both [B, T]. Padding is on the left: ends align."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    present = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        present[row, width - len(prompt) :] = 1
    return ids.to(device), present.to(device)


def _uniforms(rows: int, tokens: int, seed: int, device: torch.device) -> torch.Tensor:
    """Returns random numbers, drawn on the CPU so that they are the same for every device."""
    uniforms = [
        torch.rand(tokens, generator=torch.Generator().manual_seed(seed + row)) for row in range(rows)
    ]
    return torch.stack(uniforms).to(device)


def log_distribution(logits_RV: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities of the sampled distribution, in float32; -inf for excluded tokens.

    As in vLLM and transformers: temperature, then the `top_k` likeliest tokens, then the fewest of those
    whose probabilities add up to `top_p`. For greedy decoding, the log-probabilities of the model itself.
    """
    logits_RV = logits_RV.float()
    if sampling.temperature == 0:
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
    """Returns a token per row, [R]: the likeliest, or that where the cumulative sum exceeds the uniform."""
    if greedy:
        return logs_RV.argmax(-1)
    cumulative_RV = logs_RV.exp().cumsum(-1)
    # In float32 the sum is not exactly 1. Scaling by it ensures that no impossible token is drawn.
    threshold_R1 = uniforms_R.to(logs_RV.dtype)[:, None] * cumulative_RV[:, -1:]
    token_R = torch.searchsorted(cumulative_RV, threshold_R1, right=True)[:, 0]
    last_R = (logs_RV > -torch.inf).long().cumsum(-1).argmax(-1)
    return torch.minimum(token_R, last_R)
