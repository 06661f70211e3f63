"""The `vllm.general_plugins` entry point: what every vLLM process runs before it loads a model."""

import gc
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch

from services.inference.server.start import end_with_parent

if TYPE_CHECKING:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU


TOKEN_TEXTS = 65_536
"""Most texts of tokens that a process remembers."""


def load() -> None:
    """Installs the patches. vLLM calls it at the start of every process."""
    gc.enable()
    end_with_parent()
    _install()


@cache
def _install() -> None:
    """Once: an engine that is a fork of the server has its patches already."""
    exit_on_signals_while_starting()
    allow_several_greedy_answers()
    decode_tokens_once()
    install_cpu_lora()
    fork_cpu_engine()


def fork_cpu_engine() -> None:
    """Makes vLLM's engine on the CPU a fork of its server, in a process that has no engine yet.

    The CPU build spawns it, so that it imports torch and vLLM a second time, which is half of the processor
    time of a start. CUDA does not work in a fork, nor do the frameworks of macOS.
    """
    from vllm.platforms import current_platform
    from vllm.v1.engine import utils

    if sys.platform != "linux" or not current_platform.is_cpu() or multiprocessing.parent_process():
        return
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    os.register_at_fork(after_in_child=_leave_to_the_server)


def _leave_to_the_server() -> None:
    """Makes the fork a process like a spawned one: without the server's signals and connections, and without
    plugins. Ctrl-C is left to the server."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.modules["vllm.plugins"].plugins_loaded = False  # type: ignore[attr-defined]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names alone
        with suppress(OSError):
            family = (inherited := socket.socket(fileno=number)).family
            inherited.detach()
            if family is not socket.AF_UNIX:  # which is between the processes
                os.dup2(nowhere, number)  # the number stays taken: objects of the server close it later
    os.close(nowhere)


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


def decode_tokens_once() -> None:
    """Remembers the text of each token id. If log-probabilities are asked for, vLLM decodes each sampled
    token by itself, which took a third of its server's processor time. The texts are the same."""
    from vllm.v1.engine import logprobs

    decode = logprobs.convert_ids_list_to_tokens

    @lru_cache(maxsize=TOKEN_TEXTS)
    def text(tokenizer: Any, token: int) -> str:
        (decoded,) = decode(tokenizer, [token])
        return str(decoded)

    def texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
        return [text(tokenizer, token) for token in tokens]

    logprobs.convert_ids_list_to_tokens = texts


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

    update = PunicaWrapperCPU.update_metadata

    def update_metadata(self: PunicaWrapperCPU, *args: Any, **kwargs: Any) -> None:
        update(self, *args, **kwargs)
        self.slots, self.order = slots_and_order(self.token_lora_indices)

    PunicaWrapperCPU.update_metadata = update_metadata
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
    if self.order is None:
        sums = outputs
    else:
        inputs, sums = inputs[self.order], outputs.new_zeros(len(self.order), outputs.shape[1])
    for slot, first, end in self.slots:
        part, start = inputs[first:end], 0
        for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            shrunk = part @ a[slot, 0].T
            sums[first:end, start : start + width].addmm_(shrunk, b[slot, 0].T, alpha=scale)
            start += width
    if self.order is not None:
        outputs.index_add_(0, self.order, sums)


def slots_and_order(token_slots: torch.Tensor) -> tuple[list[tuple[int, int, int]], torch.Tensor | None]:
    """The slots in a batch, each with its range in the tokens that have an adapter, once these are ordered by
    their slots. The order is None if all tokens have the same adapter.

    >>> slots_and_order(torch.tensor([2, 2]))
    ([(2, 0, 2)], None)
    >>> slots_and_order(torch.tensor([1, -1, 0, 1]))
    ([(0, 0, 1), (1, 1, 3)], tensor([2, 0, 3]))
    >>> slots_and_order(torch.tensor([-1, -1]))
    ([], tensor([], dtype=torch.int64))
    """
    slots, ranges, end = token_slots.tolist(), [], 0
    for slot in sorted(set(slots) - {-1}):
        first, end = end, end + slots.count(slot)
        ranges.append((slot, first, end))
    if len(ranges) == 1 and end == len(slots):
        return ranges, None
    return ranges, token_slots.argsort(stable=True)[len(slots) - end :]
