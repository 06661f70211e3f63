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
from multiprocessing.util import register_after_fork
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from services.inference.server.start import end_with_parent

if TYPE_CHECKING:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.request import Request

CHUNK_TOKENS = 32
"""How many tokens of an answer the engine sends to its server at once."""

TOKEN_TEXTS = 65_536
"""Most texts of tokens that a process remembers."""


def load() -> None:
    """Installs the patches. vLLM calls it at the start of every process."""
    # Without this, vLLM searches what imports left for garbage several times: a third of its start on a CPU.
    gc.freeze()
    gc.enable()
    end_with_parent()
    _install()


@cache
def _install() -> None:
    """Once: an engine that is a fork of the server has its patches already."""
    exit_on_signals_while_starting()
    allow_several_greedy_answers()
    decode_tokens_once()
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        send_tokens_in_chunks()
        install_cpu_lora()
        install_cpu_norms()
        fork_cpu_engine()


def fork_cpu_engine() -> None:
    """Makes vLLM's engine on the CPU a fork of its server, in a process that has no engine yet.

    The CPU build spawns it, so that it imports torch and vLLM a second time, which is half of the processor
    time of a start. CUDA does not work in a fork, nor do the frameworks of macOS.
    """
    from vllm.v1.engine import utils

    if sys.platform != "linux" or multiprocessing.parent_process():
        return
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    os.register_at_fork(after_in_child=_leave_to_the_server)
    # Not only in `load`: before it, the engine waits for its server for minutes, and ignores signals.
    register_after_fork(end_with_parent, lambda end_with: end_with())


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


def send_tokens_in_chunks() -> None:
    """Makes the engine send its server the tokens of an answer that nobody streams in chunks instead of one
    by one. The first token still comes at once."""
    from vllm.v1.core.sched.scheduler import Scheduler

    update = Scheduler.update_from_output

    def update_from_output(self: Scheduler, *args: Any, **kwargs: Any) -> Any:
        answers = update(self, *args, **kwargs)
        held: dict[str, list[EngineCoreOutput]] = self.__dict__.setdefault("held_outputs", {})
        for answer in answers.values():
            answer.outputs = [
                joined(held.pop(output.request_id, []), output)
                for output in answer.outputs
                if not hold_back(held, output, self.requests.get(output.request_id))
            ]
        for cancelled in held.keys() - self.requests.keys():
            del held[cancelled]
        return answers

    Scheduler.update_from_output = update_from_output


def hold_back(
    held: dict[str, list["EngineCoreOutput"]], output: "EngineCoreOutput", request: "Request | None"
) -> bool:
    """Adds the output to the `held` ones of its request if it can wait, and returns whether. `request` is
    None if it has ended. The server looks for stop strings, so an answer with any is not held back."""
    from vllm.sampling_params import RequestOutputKind

    params = request.sampling_params if request else None
    if not params or params.output_kind is not RequestOutputKind.FINAL_ONLY or params.stop:
        return False
    more = [output.finish_reason, output.events, output.prefill_stats, output.new_prompt_logprobs_tensors]
    if any(part is not None for part in [*more, output.new_sampling_mask, output.routed_experts]):
        return False
    before = held.setdefault(output.request_id, [])
    if len(before) >= CHUNK_TOKENS - 1:
        return False
    before.append(output)
    return True


def joined(before: list["EngineCoreOutput"], last: "EngineCoreOutput") -> "EngineCoreOutput":
    """The last output with the tokens of those before it. Their log-probabilities have as many columns as
    some request of the batch asked for, so the smallest number is enough for this one."""
    if before:
        outputs = [*before, last]
        last.new_token_ids = [token for output in outputs for token in output.new_token_ids]
        rows = [output.new_logprobs for output in outputs if output.new_logprobs]
        if rows:
            width = min(row.logprobs.shape[1] for row in rows)
            last.new_logprobs = rows[0]._replace(
                logprob_token_ids=np.concatenate([row.logprob_token_ids[:, :width] for row in rows]),
                logprobs=np.concatenate([row.logprobs[:, :width] for row in rows]),
                sampled_token_ranks=np.concatenate([row.sampled_token_ranks for row in rows]),
            )
    return last


def install_cpu_lora() -> None:
    """Replaces the LoRA of linear layers in vLLM's CPU build.

    vLLM 0.32 gives a token without an adapter the index -1 and then looks up `weights[-1]`, so on the CPU the
    adapter in the last slot answers requests for the base model; 0.33 does not. Both copy the matrices of an
    adapter for every token. Here the requests of a batch are sorted by adapter, each adapter is applied to
    its own tokens by two matrix products, and tokens without an adapter are left unchanged.
    """
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    update, order = PunicaWrapperCPU.update_metadata, CPUModelRunner._may_reorder_batch

    def update_metadata(self: PunicaWrapperCPU, *args: Any, **kwargs: Any) -> None:
        update(self, *args, **kwargs)
        self.runs = adapter_runs(self.token_lora_indices)

    def reorder(self: CPUModelRunner, scheduled: Any) -> None:
        if self.reorder_batch_threshold is not None:  # this model's attention needs an order of its own
            order(self, scheduled)
            return
        batch = self.input_batch
        for pair in sorting_swaps(batch.request_lora_mapping[: batch.num_reqs]):
            batch.swap_states(*pair)

    PunicaWrapperCPU.update_metadata = update_metadata
    PunicaWrapperCPU.add_lora_linear = add_lora_linear
    CPUModelRunner._may_reorder_batch = reorder


def install_cpu_norms() -> None:
    """Uses the CPU build's own kernels for RMS norms, which vLLM 0.32 leaves to eight operations of torch.
    Results differ in the last bits."""
    from vllm.model_executor.layers.layernorm import RMSNorm

    def forward(
        self: RMSNorm, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        added = x if residual is None else residual
        # The kernels take eight numbers at a time, and check less than they should.
        has_kernel = not self.variance_size_override and self.has_weight and x.shape[-1] % 8 == 0
        has_kernel &= x.shape[-1:] == self.weight.shape and x.dtype == self.weight.dtype
        has_kernel &= (added.shape, added.dtype) == (x.shape, x.dtype)
        if has_kernel and residual is None:
            out = torch.empty(x.shape, dtype=x.dtype)
            torch.ops._C.rms_norm(out, x.contiguous(), self.weight, self.variance_epsilon)
            return out
        if has_kernel and x.is_contiguous() and added.is_contiguous():
            torch.ops._C.fused_add_rms_norm(x, added, self.weight, self.variance_epsilon)
            return x, added
        return self.forward_native(x, residual)

    RMSNorm.forward_cpu = forward


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
    for slot, first, end in self.runs:
        part, start = inputs[first:end], 0
        for a, b, width in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            shrunk = part @ a[slot, 0].T
            outputs[first:end, start : start + width].addmm_(shrunk, b[slot, 0].T, alpha=scale)
            start += width


def adapter_runs(token_slots: torch.Tensor) -> list[tuple[int, int, int]]:
    """The slots of a batch, each with a range of tokens that follow one another and have that adapter.

    >>> adapter_runs(torch.tensor([-1, 2, 2, 0]))
    [(2, 1, 3), (0, 3, 4)]
    """
    slots, lengths = torch.unique_consecutive(token_slots, return_counts=True)
    ends = lengths.cumsum(0)
    runs = zip(slots.tolist(), (ends - lengths).tolist(), ends.tolist(), strict=True)
    return [run for run in runs if run[0] >= 0]


def sorting_swaps(adapters: "np.ndarray[Any, Any]") -> Iterator[tuple[int, int]]:
    """The pairs to swap, one after the other, so that equal adapters are neighbours.

    >>> list(sorting_swaps(np.array([1, 1, 2, 1, 2])))
    [(2, 3)]
    >>> list(sorting_swaps(np.array([3, 0, 1])))
    [(0, 1), (1, 2)]
    """
    now, target = adapters.copy(), np.sort(adapters)
    for i in np.flatnonzero(now != target):
        if now[i] != target[i]:
            j = i + 1 + np.flatnonzero((now[i + 1 :] == target[i]) & (target[i + 1 :] != target[i]))[0]
            now[i], now[j] = now[j], now[i]
            yield int(i), int(j)
