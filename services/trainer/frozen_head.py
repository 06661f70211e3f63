"""Log-probabilities under a head that does not learn, with the gradient made in the forward pass.

With z = W h / T and p = softmax(z), d log p(t) / d h = (W_t - sum_v p_v W_v) / T. None of it waits for the
loss, which only scales it. So each tile of logits lives once: what the backward pass needs of it is one
row of D numbers a token, where recomputing would cost a second product and a second softmax. (Liger Kernel,
arXiv 2410.10989, section 3.2, does this for a cross-entropy that is reduced on the spot.)

Exact where the head is frozen and only log-probabilities are differentiated; `head` sees to the rest.
"""

from typing import Any

import torch

_TILE_LOGITS = 1 << 22
"""Logits held at once: 16 MiB in float32, small enough to stay in a processor's cache."""

_TILE_LOGITS_GPU = 1 << 26
"""On a GPU large products matter more than caches."""


def is_frozen(head: Any) -> bool:
    """Whether `head` is a plain linear map whose weights do not learn."""
    return type(head) is torch.nn.Linear and not head.weight.requires_grad and head.bias is None


def frozen_scores(
    head: Any, hidden_ND: torch.Tensor, targets_N: torch.Tensor, *, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """log p of each target, with a gradient for `hidden_ND`, and the entropy without one: [N], float32."""
    logprobs_N, entropy_N = _FrozenScores.apply(hidden_ND, head.weight, targets_N, temperature)
    return logprobs_N, entropy_N


class _FrozenScores(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: torch.Tensor,
        weight_VD: torch.Tensor,
        targets_N: torch.Tensor,
        temperature: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tile by tile; keeps d log p / d h, [N, D], if anyone will ask."""
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        logprobs_N = hidden_ND.new_empty(len(hidden_ND), dtype=wide)
        entropy_N = torch.empty_like(logprobs_N)
        slope_ND = torch.empty_like(hidden_ND) if ctx.needs_input_grad[0] else None
        most = _TILE_LOGITS_GPU if hidden_ND.is_cuda else _TILE_LOGITS
        size = max(1, most // weight_VD.shape[0])
        for start in range(0, len(hidden_ND), size):
            here = slice(start, start + size)
            z_NV = (hidden_ND[here] @ weight_VD.T).to(wide)
            if temperature != 1.0:
                z_NV /= temperature
            z_NV -= z_NV.amax(-1, keepdim=True)
            target_N = z_NV.gather(-1, targets_N[here, None])[:, 0]
            p_NV = z_NV.exp()
            sum_N = p_NV.sum(-1)
            p_NV /= sum_N[:, None]
            logprobs_N[here] = target_N - sum_N.log()
            entropy_N[here] = sum_N.log() - torch.linalg.vecdot(p_NV, z_NV)
            if slope_ND is not None:
                mean_ND = p_NV.to(weight_VD.dtype) @ weight_VD
                slope_ND[here] = (weight_VD[targets_N[here]] - mean_ND) / temperature
        if slope_ND is not None:
            ctx.save_for_backward(slope_ND)
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, grad_N: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The loss's gradient scales what the forward pass kept."""
        (slope_ND,) = ctx.saved_tensors
        return (grad_N[:, None] * slope_ND).to(slope_ND.dtype), None, None, None
