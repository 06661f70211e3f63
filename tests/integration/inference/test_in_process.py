"""What needs vLLM itself, and no server: what the plugin replaces, and the check of flags and models."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from rookery.config.inference import ServerSettings
from rookery.errors import EngineFault, SetupError
from tests.conftest import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.torch]

torch = pytest.importorskip("torch")

from services.inference.server import engine_plugin, vllm_command  # noqa: E402
from services.inference.server.engine_plugin import (  # noqa: E402
    CHUNK_TOKENS,
    adapter_runs,
    add_lora_linear,
    decode_tokens_once,
    fork_cpu_engine,
    hold_back,
    install_cpu_norms,
    joined,
    send_tokens_in_chunks,
    sorting_swaps,
)

SLOTS, RANK, WIDTH = 4, 8, 24
SLICES = (32, 16)


class Wrapper:
    """What the function reads of vLLM's wrapper."""

    def __init__(self, slots: list[int]) -> None:
        self.runs = adapter_runs(torch.tensor(slots))


def _weights() -> "tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]":
    torch.manual_seed(0)
    a = tuple(torch.randn(SLOTS, 1, RANK, WIDTH) for _ in SLICES)
    return a, tuple(torch.randn(SLOTS, 1, size, RANK) for size in SLICES)


def _stock(slots: list[int], x: "torch.Tensor", y: "torch.Tensor") -> "torch.Tensor":
    from vllm.lora.ops.torch_ops import bgmv_expand_slice, bgmv_shrink

    indices, y, start = torch.tensor(slots), y.clone(), 0
    for a, b, size in zip(*_weights(), SLICES, strict=True):
        shrunk = torch.zeros(len(slots), RANK)
        bgmv_shrink(x, a, shrunk, indices, 0.5)
        bgmv_expand_slice(shrunk, b, y, indices, start, size, True)
        start += size
    return y


@pytest.mark.parametrize("slots", [[2] * 5, [0, 3, 3, 1, 0], [1], [1, 1, 0, 0]])
def test_with_an_adapter_the_numbers_are_vllms(slots: list[int]) -> None:
    x, y = torch.randn(len(slots), WIDTH), torch.randn(len(slots), sum(SLICES))
    expected = _stock(slots, x, y)
    add_lora_linear(Wrapper(slots), y, x, *_weights(), 0.5, SLICES)
    assert torch.allclose(y, expected, atol=1e-4)


@pytest.mark.parametrize("slots", [[-1, 2, -1, 0], [-1, -1]])
def test_without_an_adapter_nothing_is_added(slots: list[int]) -> None:
    x, y = torch.randn(len(slots), WIDTH), torch.randn(len(slots), sum(SLICES))
    before, stock = y.clone(), _stock(slots, x, y)
    add_lora_linear(Wrapper(slots), y, x, *_weights(), 0.5, SLICES)
    base = torch.tensor(slots) < 0
    assert torch.equal(y[base], before[base])
    assert torch.allclose(y[~base], stock[~base], atol=1e-4)
    from vllm import __version_tuple__ as version

    assert torch.allclose(stock[base], before[base]) == (version >= (0, 33)), "0.33 has mended it"


@pytest.mark.parametrize("seed", range(20))
def test_swaps_make_equal_adapters_neighbours(seed: int) -> None:
    random = np.random.default_rng(seed)
    adapters = random.integers(0, 4, size=seed * 3)
    swaps, now = 0, adapters.copy()
    for i, j in sorting_swaps(adapters):
        now[i], now[j] = now[j], now[i]
        swaps += 1
    assert now.tolist() == sorted(adapters.tolist())
    assert swaps <= (adapters != np.sort(adapters)).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [12, 24])
def test_norms_are_those_of_torch_and_by_the_kernel_if_it_fits(
    width: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.layernorm import RMSNorm

    monkeypatch.setattr(RMSNorm, "forward_cpu", RMSNorm.forward_cpu)
    install_cpu_norms()
    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        norm = RMSNorm(width, dtype=dtype)
    norm.weight.data.normal_()
    wide, residual = torch.randn(5, 3 * width, dtype=dtype), torch.randn(5, width, dtype=dtype)
    middle = wide[:, width : 2 * width]
    inputs = [middle, middle.contiguous(), wide.view(5, 3, width), wide[:, width:].view(5, 2, width)]
    expected = [norm.forward_native(x) for x in inputs]
    normed_sum, added = norm.forward_native(inputs[1].clone(), residual.clone())
    if width % 8 == 0:
        monkeypatch.setattr(norm, "forward_native", None)
    close = {"atol": 1e-5} if dtype == torch.float32 else {"atol": 0.04, "rtol": 0.01}
    for x, normed in zip(inputs, expected, strict=True):
        assert torch.allclose(norm.forward_cpu(x), normed, **close)
    x = inputs[1].clone()
    result = norm.forward_cpu(x, residual.clone())
    assert torch.allclose(result[0], normed_sum, **close)
    assert torch.equal(result[1], added)
    if width % 8:
        assert torch.allclose(norm.forward_cpu(middle, residual)[0], normed_sum, **close)


def _output(token: int, width: int, **fields: Any) -> Any:
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.outputs import LogprobsLists

    row = np.arange(width)[None] + token
    rows = LogprobsLists(row, -row.astype(np.float32), np.array([token]))
    return EngineCoreOutput("a", [token], new_logprobs=rows, **fields)


def test_tokens_are_held_back_and_sent_together() -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine import FinishReason

    request = SimpleNamespace(sampling_params=SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY))
    held: dict[str, list[Any]] = {}
    assert not hold_back(held, _output(1, 1, prefill_stats=object()), request), "the first one comes at once"
    # Another request of the batch asks for two more columns from the third token on.
    outputs = [_output(token, 3 if token > 3 else 1) for token in range(2, CHUNK_TOKENS + 2)]
    waiting = [hold_back(held, output, request) for output in outputs]
    assert waiting == [True] * (CHUNK_TOKENS - 1) + [False]
    chunk = joined(held.pop("a"), outputs[-1])
    tokens = list(range(2, CHUNK_TOKENS + 2))
    assert chunk.new_token_ids == tokens
    assert chunk.new_logprobs.logprob_token_ids.tolist() == [[token] for token in tokens]
    assert chunk.new_logprobs.logprobs.tolist() == [[-token] for token in tokens]
    assert chunk.new_logprobs.sampled_token_ranks.tolist() == tokens
    assert hold_back(held, _output(8, 1), request)
    last = _output(9, 1, finish_reason=FinishReason.STOP)
    assert not hold_back(held, last, request)
    assert not hold_back(held, last, None)
    assert joined(held.pop("a"), last).new_token_ids == [8, 9]


def test_a_cancelled_request_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine import EngineCoreOutputs

    request = SimpleNamespace(sampling_params=SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY))
    scheduler = SimpleNamespace(requests={"a": request})
    answers = iter([EngineCoreOutputs(outputs=[_output(1, 1)]), EngineCoreOutputs()])
    monkeypatch.setattr(Scheduler, "update_from_output", lambda *_: {0: next(answers)})
    send_tokens_in_chunks()
    assert Scheduler.update_from_output(scheduler)[0].outputs == []
    assert scheduler.held_outputs.keys() == {"a"}
    del scheduler.requests["a"]
    assert Scheduler.update_from_output(scheduler)[0].outputs == []
    assert scheduler.held_outputs == {}


@pytest.mark.parametrize(("kind", "stop"), [("DELTA", None), ("FINAL_ONLY", ["x"])])
def test_streams_and_stop_strings_get_each_token(kind: str, stop: list[str] | None) -> None:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    params = SamplingParams(stop=stop, output_kind=RequestOutputKind[kind])
    assert not hold_back({}, _output(1, 1), SimpleNamespace(sampling_params=params))


def test_a_token_is_decoded_once_to_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoTokenizer
    from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens
    from vllm.v1.engine import logprobs

    monkeypatch.setattr(logprobs, "convert_ids_list_to_tokens", convert_ids_list_to_tokens)
    tokenizer = AutoTokenizer.from_pretrained("models/rook-small")
    tokens = [*range(len(tokenizer)), *range(20)]
    expected = convert_ids_list_to_tokens(tokenizer, tokens)
    decode_tokens_once()
    assert logprobs.convert_ids_list_to_tokens(tokenizer, tokens) == expected
    monkeypatch.setattr(type(tokenizer), "decode", None)
    assert logprobs.convert_ids_list_to_tokens(tokenizer, tokens) == expected


@pytest.mark.parametrize(("system", "method"), [("linux", "fork"), ("darwin", "spawn")])
def test_the_engine_is_a_fork_on_linux_alone(
    monkeypatch: pytest.MonkeyPatch, system: str, method: str
) -> None:
    from vllm.utils.system_utils import get_mp_context
    from vllm.v1.engine import utils

    monkeypatch.setattr(utils, "get_mp_context", get_mp_context)
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: None)
    monkeypatch.setattr(engine_plugin, "register_after_fork", lambda *hook: None)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    fork_cpu_engine()
    assert utils.get_mp_context().get_start_method() == method


def test_a_forked_engine_ends_with_its_server_from_the_first_moment() -> None:
    engine = """
import os, time
from vllm.v1.engine import utils
from services.inference.server.engine_plugin import fork_cpu_engine

def wait():
    print(os.getpid(), flush=True)
    time.sleep(600)

fork_cpu_engine()
utils.get_mp_context().Process(target=wait).start()
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", engine], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        child = psutil.Process(int(server.stdout.readline()))
        server.kill()
    try:
        child.wait(timeout=60)
    finally:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def settings(*flags: str) -> ServerSettings:
    return ServerSettings.parse(list(flags), prog="server")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--quantisation fp8", "vLLM has no flag '--quantisation'; did you mean '--quantization'?"),
        ("--quant fp8", "vLLM has no flag '--quant'"),
        ("--block-size many", "--block-size: .*'many'"),
        ("--quantization fp8 -q --no-enable-prefix-caching", "expected one argument"),
    ],
)
def test_flags_are_checked_with_vllms_own_parser(flags: str, reason: str) -> None:
    vllm_command.check_flags(
        settings("--vllm", "--kv_cache_dtype=fp8 --speculative-config.method ngram -q fp8")
    )
    with pytest.raises(SetupError, match=reason):
        vllm_command.check_flags(settings(f"--vllm={flags}"))


NO_END = {
    "config.json": "eos_token_id",
    "generation_config.json": "eos_token_id",
    "tokenizer_config.json": "eos_token",
}


@pytest.mark.parametrize("kept", [*NO_END, ""])
def test_a_model_whose_answers_would_not_end_is_refused(tmp_path: Path, kept: str) -> None:
    model = tmp_path / "model"
    shutil.copytree(ROOT / "models" / "rook-tiny", model)
    for name, key in NO_END.items():
        if name != kept:
            values = json.loads((model / name).read_text())
            (model / name).write_text(json.dumps(values | {key: None}))
    chosen = settings("--model", str(model))
    if kept == "config.json":
        (model / "generation_config.json").unlink()  # vLLM reads it instead
    if kept:
        vllm_command.command(chosen, port=1, cpu=True)
    else:
        with pytest.raises(SetupError, match=r"model' has no end token, .* eos_token in tokenizer_config"):
            vllm_command.command(chosen, port=1, cpu=True)


async def test_a_warm_up_that_does_not_end_is_a_fault_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from services.inference.server import engine

    class Hanging(engine.VllmEngine):
        def __init__(self) -> None:
            self._client, self._canary_ids = SimpleNamespace(errored=False), (1,)  # type: ignore[assignment]

        async def _generate(self, *args: Any, **options: Any) -> Any:
            await asyncio.sleep(60)

    monkeypatch.setattr(engine, "WARM_UP_TIMEOUT_S", 0.1)
    with pytest.raises(EngineFault, match=r"warm-up was not answered: no answer within 0\.1 s"):
        await Hanging().warm_up(None)  # type: ignore[arg-type]
