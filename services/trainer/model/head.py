"""Computes log-probabilities, entropy and KL of the completion tokens, in chunks.

Only hidden states that predict a completion token are used, and chunks are recomputed in the backward pass,
so the full logits [B, T, V] never exist. Weights may be bfloat16; logits and scores are float32.
"""

from dataclasses import dataclass

import torch
from torch.utils.checkpoint import checkpoint

from services.trainer.losses.regularisers import Divergence, divergence
from services.trainer.model.base_model import Head
from services.trainer.model.frozen_head import Columns, Reference, frozen_scores, is_frozen

_CHUNK_LOGITS = 1 << 24
"""Logits in memory at once: 64 MiB in float32."""

_CHUNK_LOGITS_GPU = 1 << 26
"""On a GPU, large matrix products matter more than caches."""


@dataclass(frozen=True, slots=True)
class WithGradient:
    """Which scores carry a gradient besides the log-probabilities."""

    entropy: bool = False
    kl: Divergence | None = None
    """The divergence with a gradient, if any. It needs a reference."""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores of each completion token, [N]. Without a reference the last three are None.

    `logprobs_N` carries a gradient; `entropy_N` does if requested. `reference_kl_N` is the exact
    D(policy || reference) without gradient; `kl_N` is the requested divergence, with one.
    """

    logprobs_N: torch.Tensor
    entropy_N: torch.Tensor
    hidden_ND: torch.Tensor
    reference_logprobs_N: torch.Tensor | None = None
    reference_kl_N: torch.Tensor | None = None
    kl_N: torch.Tensor | None = None


def score_tokens(
    head: Head,
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
    *,
    vocabulary: int,
    temperature: float,
    reference_ND: torch.Tensor | None = None,
    reference_head: Head | None = None,
    with_gradient: WithGradient = WithGradient(),
) -> TokenScores:
    """Returns the scores of `targets_N`, predicted by `hidden_ND`, at the sampling temperature.

    `reference_ND` are the reference's hidden states at the same positions. Without `reference_head` the
    reference uses `head`, which never has an adapter.

    Raises:
        ValueError: a KL is requested without a reference.
    """
    if with_gradient.kl and reference_ND is None:
        raise ValueError(f"KL {with_gradient.kl!r} needs the hidden states of a reference")
    reference_head = reference_head or head
    if is_frozen(head) and is_frozen(reference_head):
        reference = None if reference_ND is None else Reference(reference_ND, reference_head)
        logprobs_N, entropy_N, *others = frozen_scores(
            head,
            hidden_ND,
            targets_N,
            temperature=temperature,
            reference=reference,
            entropy=with_gradient.entropy,
            kl=with_gradient.kl,
        )
        return TokenScores(logprobs_N, entropy_N, hidden_ND, *others)
    max_logits = _CHUNK_LOGITS_GPU if hidden_ND.is_cuda else _CHUNK_LOGITS
    size = max(1, max_logits // (vocabulary * (1 if reference_ND is None else 2)))
    heads = (head, reference_head)
    parts = []
    for start in range(0, max(1, len(hidden_ND)), size):
        positions = slice(start, start + size)
        reference = None if reference_ND is None else reference_ND[positions]
        arguments = (heads, hidden_ND[positions], targets_N[positions], temperature, reference, with_gradient)
        if len(hidden_ND) <= size:
            parts.append(_chunk(*arguments))
        else:
            parts.append(checkpoint(_chunk, *arguments, use_reentrant=False))
    logprobs, entropies, references, exacts, kls = zip(*parts, strict=True)
    return TokenScores(
        logprobs_N=torch.cat(logprobs),
        entropy_N=torch.cat(entropies),
        hidden_ND=hidden_ND,
        reference_logprobs_N=_joined(references),
        reference_kl_N=_joined(exacts),
        kl_N=_joined(kls),
    )


def _joined(parts: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors) if tensors else None


def _chunk(
    heads: tuple[Head, Head],
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
    temperature: float,
    reference_ND: torch.Tensor | None,
    with_gradient: WithGradient,
) -> Columns:
    head, reference_head = heads
    logs_NV = (head(hidden_ND) / temperature).log_softmax(-1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and with_gradient.entropy):
        entropy_N = -(logs_NV.exp() * logs_NV).sum(-1)
    logprobs_N = logs_NV.gather(-1, targets_N[:, None])[:, 0]
    if reference_ND is None:
        return logprobs_N, entropy_N, None, None, None
    with torch.no_grad():
        reference_NV = (reference_head(reference_ND) / temperature).log_softmax(-1)
        exact_N = divergence("policy_reference", logs_NV, reference_NV)
    kl_N = divergence(with_gradient.kl, logs_NV, reference_NV) if with_gradient.kl else None
    return logprobs_N, entropy_N, reference_NV.gather(-1, targets_N[:, None])[:, 0], exact_N, kl_N
