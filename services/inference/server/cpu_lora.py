"""LoRA for vLLM's CPU build: correct for requests without an adapter, and without copies of the weights.

vLLM 0.32 gives a token without an adapter the index -1 and then looks up `weights[-1]`, so on the CPU the
adapter in the last slot answers requests for the base model. It also copies an adapter's matrices for every
token. Here each adapter in the batch is applied to its own tokens by two matrix products, and tokens without
an adapter are left unchanged.
"""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


def install() -> None:
    """Replaces the LoRA of linear layers in vLLM's CPU build; does nothing on other builds."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    PunicaWrapperCPU.add_lora_linear = add_lora_linear


def add_lora_linear(
    self: "PunicaWrapperCPU",
    y: torch.Tensor,
    x: torch.Tensor,
    lora_a_stacked: tuple[torch.Tensor, ...],
    lora_b_stacked: tuple[torch.Tensor, ...],
    scale: float,
    output_slices: tuple[int, ...],
    **_: Any,
) -> None:
    """Adds `scale * x @ A.T @ B.T` of each token's adapter to y, for each slice of y's last dimension.

    Shapes: x [..., in], y [..., out], A [slots, 1, rank, in], B [slots, 1, out of the slice, rank].
    """
    outputs, inputs = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
    for slot, tokens in tokens_by_slot(self.token_lora_indices):
        part, start = inputs[tokens], 0
        for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            delta = (part @ a[slot].squeeze(0).T).mul_(scale) @ b[slot].squeeze(0).T
            outputs[:, start : start + width][tokens] += delta
            start += width


def tokens_by_slot(token_slots: torch.Tensor) -> list[tuple[int, torch.Tensor | slice]]:
    """The slots in a batch, each with the indices of its tokens.

    >>> tokens_by_slot(torch.tensor([2, 2]))
    [(2, slice(0, 2, None))]
    >>> tokens_by_slot(torch.tensor([1, -1, 1]))
    [(1, tensor([0, 2]))]
    >>> tokens_by_slot(torch.tensor([-1, -1]))
    []
    """
    slots = token_slots.unique().tolist()
    if len(slots) == 1 and slots[0] >= 0:
        return [(slots[0], slice(0, len(token_slots)))]
    return [(slot, (token_slots == slot).nonzero()[:, 0]) for slot in slots if slot >= 0]
