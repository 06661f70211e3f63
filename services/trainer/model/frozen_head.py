"""Scores under a frozen output head, with the gradients computed in the forward pass.

With z = f(W h) as in `base_model.Head`, p = softmax(z / T), q the reference's and x = log p - log q,
the gradients with respect to h are

    log p(t)         sum (1[t] - p) f' W / T
    entropy H        -sum p (log p + H) f' W / T
    D(p || q)        sum p (x - D) f' W / T
    D(q || p)        sum (p - q) f' W / T

None of them depends on the loss, which only scales them. So each tile of logits is computed once: the
backward pass needs one row of D numbers per token and score, where recomputing would cost a second product
and a second softmax. (Liger Kernel, arXiv 2410.10989, section 3.2, does this for a cross-entropy that is
reduced at once.) This is exact only for frozen heads; `head.score_tokens` checks that.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from services.trainer.losses.regularisers import Divergence, divergence
from services.trainer.model.base_model import Head

_TILE_LOGITS = 1 << 22
"""Logits in memory at once: 16 MiB in float32, small enough to stay in a processor's cache."""

_TILE_LOGITS_GPU = 1 << 26
"""On a GPU, large matrix products matter more than caches."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Hidden states of the reference at the same positions, [N, D], and its head."""

    hidden_ND: torch.Tensor
    head: Head


Columns = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
"""For each token, [N] in float32: log p of the target and entropy; with a reference also its log p,
D(p || q) without gradient, and the requested divergence."""


def is_frozen(head: Head) -> bool:
    """Returns whether the head is a plain linear layer without bias whose weights are not trained."""
    linear: Any = head.linear
    return type(linear) is torch.nn.Linear and not linear.weight.requires_grad and linear.bias is None


def frozen_scores(
    head: Head,
    hidden_ND: torch.Tensor,
    targets_N: torch.Tensor,
    *,
    temperature: float,
    reference: Reference | None = None,
    entropy: bool = False,
    kl: Divergence | None = None,
) -> Columns:
    """Returns the scores of `targets_N`. `entropy` and `kl` request gradients besides those of log p."""
    columns: Columns = _FrozenScores.apply(hidden_ND, head, targets_N, temperature, reference, entropy, kl)
    return columns


class _FrozenScores(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: torch.Tensor,
        head: Head,
        targets_N: torch.Tensor,
        temperature: float,
        reference: Reference | None,
        entropy: bool,
        kl: Divergence | None,
    ) -> Columns:
        """Computes the scores tile by tile. Keeps the requested gradients, [N, D] each, if h needs them."""
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        max_logits = _TILE_LOGITS_GPU if hidden_ND.is_cuda else _TILE_LOGITS
        vocabulary = len(_weight(head))
        size = max(1, max_logits // vocabulary)
        passes = 1 if reference is None else 2
        logits = hidden_ND.new_empty(passes, 2, min(size, len(hidden_ND)), vocabulary, dtype=wide)
        tiled = _Tiles(head, temperature, logits, learns=ctx.needs_input_grad[0], entropy=entropy, kl=kl)
        tiles = []
        for start in range(0, max(1, len(hidden_ND)), size):
            positions = slice(start, start + size)
            base = None if reference is None else replace(reference, hidden_ND=reference.hidden_ND[positions])
            tiles.append(tiled.tile(hidden_ND[positions], targets_N[positions], base))
        joined = [None if parts[0] is None else torch.cat(parts) for parts in zip(*tiles, strict=True)]
        columns, slopes = joined[:5], joined[5:]
        ctx.save_for_backward(*slopes)
        ctx.set_materialize_grads(False)
        differentiable = (columns[0], columns[1] if entropy else None, columns[4])
        ctx.mark_non_differentiable(
            *(c for c in columns if c is not None and all(c is not x for x in differentiable))
        )
        return cast(Columns, tuple(columns))

    @staticmethod
    def backward(
        ctx: Any, logprobs_N: Any, entropy_N: Any, _: Any, __: Any, kl_N: Any
    ) -> tuple[torch.Tensor | None, ...]:
        """Scales the gradients that the forward pass kept by the loss's gradients."""
        total_ND: Any = None
        for grad_N, slope_ND in zip((logprobs_N, entropy_N, kl_N), ctx.saved_tensors, strict=True):
            if grad_N is not None:
                part_ND = grad_N[:, None] * slope_ND
                total_ND = part_ND if total_ND is None else total_ND + part_ND
        return (None if total_ND is None else total_ND.to(ctx.saved_tensors[0].dtype), *[None] * 6)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Computes tiles. `logits` is memory reused by all: two buffers for the policy, two for a reference."""

    head: Head
    temperature: float
    logits: torch.Tensor
    learns: bool
    entropy: bool
    kl: Divergence | None

    def tile(
        self, hidden_nD: torch.Tensor, targets_n: torch.Tensor, reference: Reference | None
    ) -> tuple[torch.Tensor | None, ...]:
        """Returns the five columns, then the gradients of log p, entropy and KL, [n, D], as requested."""
        logs_nV, p_nV, slope_nV = _softmax(hidden_nD, self.head, self.temperature, into=self.logits[0])
        logprobs_n, entropy_n = _target_logs(logs_nV, targets_n), -torch.linalg.vecdot(p_nV, logs_nV)
        base_n = exact_n = kl_n = logprob_grad_nD = entropy_grad_nD = kl_grad_nD = None
        if self.learns and self.entropy:
            entropy_grad_nD = -self._to_hidden(p_nV * (logs_nV + entropy_n[:, None]), slope_nV)
        if reference is not None:
            base_nV, q_nV, _ = _softmax(
                reference.hidden_ND, reference.head, self.temperature, into=self.logits[1]
            )
            base_n = _target_logs(base_nV, targets_n)
            exact_n = divergence("policy_reference", logs_nV, base_nV)
            if self.kl:
                kl_n = divergence(self.kl, logs_nV, base_nV)
            if self.kl and self.learns:
                weights_nV = _kl_slope(self.kl, p_nV, q_nV, logs_nV - base_nV, exact_n[:, None])
                kl_grad_nD = self._to_hidden(weights_nV, slope_nV)
        if self.learns:
            # Subtracted before rounding to 16 bits: for a confident token the two terms nearly cancel.
            p_nV[torch.arange(len(p_nV), device=p_nV.device), targets_n] -= 1.0
            logprob_grad_nD = self._to_hidden(p_nV.neg_(), slope_nV)
        return logprobs_n, entropy_n, base_n, exact_n, kl_n, logprob_grad_nD, entropy_grad_nD, kl_grad_nD

    def _to_hidden(self, weights_nV: torch.Tensor, slope_nV: torch.Tensor | float) -> torch.Tensor:
        """Turns a gradient of the logits into one of h; `slope_nV` is the derivative of scale and cap."""
        weight_VD = _weight(self.head)
        if isinstance(slope_nV, torch.Tensor):
            return ((weights_nV * slope_nV).to(weight_VD.dtype) @ weight_VD) / self.temperature
        return (weights_nV.to(weight_VD.dtype) @ weight_VD) / (self.temperature / slope_nV)


def _target_logs(logs_nV: torch.Tensor, targets_n: torch.Tensor) -> torch.Tensor:
    return logs_nV.gather(-1, targets_n[:, None])[:, 0]


def _weight(head: Head) -> torch.Tensor:
    return cast(torch.nn.Linear, head.linear).weight


def _softmax(
    hidden_nD: torch.Tensor, head: Head, temperature: float, into: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | float]:
    """Returns log-probabilities and probabilities, stored in `into`, and the derivative of scale and cap."""
    weight_VD = _weight(head)
    logs_nV, p_nV = into[0, : len(hidden_nD)], into[1, : len(hidden_nD)]
    if weight_VD.dtype == into.dtype:
        torch.mm(hidden_nD, weight_VD.T, out=logs_nV)
    else:
        logs_nV.copy_(hidden_nD @ weight_VD.T)
    shaped_nV = head.shaped(logs_nV)
    slope_nV = head.slope(shaped_nV)
    if shaped_nV is not logs_nV:
        logs_nV.copy_(shaped_nV)
    if temperature != 1.0:
        logs_nV /= temperature
    logs_nV -= logs_nV.amax(-1, keepdim=True)
    torch.exp(logs_nV, out=p_nV)
    total_n1 = p_nV.sum(-1, keepdim=True)
    p_nV /= total_n1
    logs_nV -= total_n1.log()
    return logs_nV, p_nV, slope_nV


def _kl_slope(
    kl: Divergence, p_nV: torch.Tensor, q_nV: torch.Tensor, x_nV: torch.Tensor, exact_n1: torch.Tensor
) -> torch.Tensor:
    """Returns the gradient of a divergence with respect to the logits, before scale, cap and temperature."""
    if kl == "policy_reference":
        return p_nV * (x_nV - exact_n1)
    if kl == "reference_policy":
        return p_nV - q_nV
    return (p_nV * (x_nV - exact_n1 + 1) - q_nV) / 2
