"""The `vllm.general_plugins` entry point: what every vLLM process runs before it loads a model."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from services.inference.server.start import end_with_parent

if TYPE_CHECKING:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


def load() -> None:
    """Installs the patches. vLLM calls it at the start of every process."""
    exit_on_signals_while_starting()
    end_with_parent()
    allow_several_greedy_answers()
    install_cpu_lora()


def exit_on_signals_while_starting() -> None:
    """Lets a signal end vLLM's server while it waits for its engine to start.

    vLLM 0.32 raises KeyboardInterrupt there, and `zmq_socket_ctx` swallows it, so the server would start and
    serve in spite of the signal. With this patch it exits with status 143.
    """
    from vllm.v1.engine import utils

    swallowing = utils.zmq_socket_ctx

    @contextmanager
    def not_swallowing(*args: Any, **kwargs: Any) -> Iterator[Any]:
        whole = False
        with swallowing(*args, **kwargs) as socket:
            yield socket
            whole = True
        if not whole:
            raise SystemExit(128 + signal.SIGTERM)

    utils.zmq_socket_ctx = not_swallowing


def allow_several_greedy_answers() -> None:
    """Lets a request at temperature 0 ask for several answers, which are equal, as in OpenAI's API. vLLM
    refuses it, although nothing in its engine depends on it."""
    from vllm.sampling_params import SamplingParams

    SamplingParams._verify_greedy_sampling = lambda _: None


def install_cpu_lora() -> None:
    """Replaces the LoRA of linear layers in vLLM's CPU build; does nothing on other builds.

    vLLM 0.32 gives a token without an adapter the index -1 and then looks up `weights[-1]`, so on the CPU the
    adapter in the last slot answers requests for the base model; 0.33 does not. Both copy the matrices of an
    adapter for every token. Here each in the batch is applied to its own tokens by two matrix products, and
    tokens without an adapter are left unchanged.
    """
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
    Shapes: x [..., in], y [..., out], A [slots, 1, rank, in], B [slots, 1, out of the slice, rank]."""
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
