"""Settings of the inference server. Imports neither vLLM nor torch, so that `--help` is fast.

The launcher reads them from flags, environment and TOML. It passes them to vLLM's process as `INFERENCE_*`
variables (plus `ROOKERY_REDIS_URL` and `ROOKERY_RUN`), where the plugin reads them again.
"""

import re
import shlex
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from rookery.access import AccessSettings
from rookery.devices import ServerDevices
from rookery.errors import SetupError
from rookery.hub import local_model, model_folder
from rookery.prompt import StyleName
from rookery.remote import FolderPath, PathOrUrl
from rookery.settings import Port, PresetSettings, RunSettings, check_http_url

SamplingName = Literal["model", "qwen3-thinking", "qwen3-non-thinking", "neutral"]

# The "Best Practices" of https://huggingface.co/Qwen/Qwen3-4B#best-practices.
SAMPLING_DEFAULTS: dict[str, dict[str, float]] = {
    "qwen3-thinking": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
    "qwen3-non-thinking": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0},
    "neutral": {},
}
"""For requests that set no sampling parameters; the fields are those of `generation_config.json`.

Rollouts do not use them: they always send their temperature (1 by default), top_p 1 and no top_k, because
importance ratios need a distribution that is not truncated.
"""


_OURS = "what this project promises rests on its value"
VLLM_OWNED: Mapping[str, str] = {
    "model": "--model", "served-model-name": "--model", "tokenizer": "--model", "revision": "--model",
    "host": "--host", "port": "--port", "uds": "--host", "root-path": "--host", "api-key": "ROOKERY_TOKEN",
    "ssl-keyfile": "--tls-key", "ssl-certfile": "--tls-cert", "ssl-ca-certs": "--tls-ca",
    "ssl-cert-reqs": "--tls-ca",
    "tensor-parallel-size": "--device 0,1", "device-ids": "--device", "max-num-seqs": "--max-num-seqs",
    "gpu-memory-utilization": "--gpu-memory", "max-model-len": "--max-model-len",
    "max-loras": "--max-loras", "max-cpu-loras": "--max-loras", "max-lora-rank": "--max-lora-rank",
    "enable-lora": "--full-weights", "worker-extension-cls": "--full-weights", "enable-sleep-mode": "--sleep",
    "override-generation-config": "--sampling", "generation-config": "--sampling",
    "default-chat-template-kwargs": "--thinking",
    **dict.fromkeys((
        "allowed-origins", "api-server-count", "config", "data-parallel-size", "enable-prompt-embeds",
        "headless", "load-format", "logprobs-mode", "lora-modules", "max-logprobs", "scheduling-policy",
        "shutdown-timeout", "trust-remote-code",
    ), _OURS),
}  # fmt: skip
"""Flags of vLLM that `--vllm` cannot have, and the setting that stands for each."""

_SHORT = {"-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size", "-asc": "--api-server-count"}


def vllm_flag(word: str) -> str:
    """The name of the flag in a word of a command line; empty for a value.

    >>> [vllm_flag(word) for word in ("--max_model_len=5", "--speculative-config.method", "-tp", "-1", "fp8")]
    ['max-model-len', 'speculative-config', 'tensor-parallel-size', '', '']
    """
    name = _SHORT.get(word, word).partition("=")[0].partition(".")[0].replace("_", "-")
    return name.lstrip("-") if re.match("--?[a-z]", name) else ""


class ServerSettings(RunSettings, PresetSettings, AccessSettings, env_prefix="INFERENCE_"):
    """Runs one vLLM server that loads new policy versions."""

    model: PathOrUrl = "models/rook-tiny"
    """Base model: a directory, a Hugging Face id, or the URL of a folder, such as s3://bucket/sft/model. Its
    weights must be safetensors."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8000
    """HTTP port; 0 picks a free one."""
    device: ServerDevices = "auto"
    """cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto: what vLLM was built for. Several, such
    as 0,1, share each layer of the model (tensor parallelism)."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Data type of the weights. auto: float32 on a CPU, bfloat16 on a GPU of compute capability 8.0 or more,
    else float16. vLLM has no LoRA in float32 on a GPU."""
    adapter_root: FolderPath = Path("runs")
    """Versions outside this directory are refused."""
    adapter_url: str = Field(default="", pattern=r"^$|^[a-z0-9]+://.+")
    """Where to download versions that are not in --adapter-root, to which they are written: the trainer's
    http://HOST:8003/adapters, or the store of its --adapter-store, such as s3://bucket/adapters."""
    follow: bool = True
    """Load the version that the run's `policy` record in Redis names; if off, only /reload loads one."""
    full_weights: bool = False
    """Versions are whole models instead of LoRA adapters, which vLLM does not support for GPT-2. All
    weights are replaced once the requests in flight have ended."""
    allowed_models: str = ""
    """Base models that may be used, by name or by digest (sha256:...), separated by commas. Default: any.
    ROOKERY_ALLOWED_MODELS sets it for server and trainer."""
    open_routes: str = ""
    """Further routes of vLLM to serve, separated by commas, such as /tokenize,/v1/responses."""
    max_loras: int = Field(default=4, ge=2)
    """LoRA slots in vLLM. One is kept for the next version, so the newest max_loras - 1 are served."""
    leases: NonNegativeInt = 0
    """LoRA slots besides --max-loras, for versions that /lease keeps served, for example for evaluations."""
    max_lora_rank: Annotated[Literal[8, 16, 32, 64, 128, 256], BeforeValidator(int)] = 16
    """Largest rank accepted. On CPU every request costs as much as this rank, whatever its adapter's rank."""
    sampling: SamplingName = "model"
    """Sampling parameters for requests that set none. model: the temperature, top_p, top_k and min_p of the
    model's generation_config.json."""
    style: StyleName | None = None
    """Prompt style of /v1/move. Default: the manifest's or, with a chat template, fen-legal-san."""
    answer_tokens: PositiveInt | None = None
    """Longest answer of /v1/move, in tokens. Default: as the model's manifest, template and size have it."""
    thinking: bool | None = None
    """Whether a model that can think, such as Qwen3, does: enable_thinking of its chat template. Default: as
    the template has it. Requests may choose for themselves with chat_template_kwargs."""
    max_model_len: PositiveInt | None = None
    """Longest prompt and completion together, in tokens, at most the model's limit. Default: that limit, and
    on CPU at most 8192."""
    max_num_seqs: PositiveInt = 256
    """Completions generated at the same time; others wait."""
    kv_cache_gib: PositiveInt = 1
    """Size of the key-value cache on CPU. On a GPU, vLLM uses the free memory."""
    gpu_memory: float | None = Field(default=None, gt=0, le=1)
    """Share of the GPU's memory to use. Default: vLLM's, which is for one server on the GPU."""
    drain_s: PositiveFloat = 100.0
    """Seconds in which answers in flight must end when /sleep or a version of full weights waits for them;
    twice the time of the longest recent answer if that is more."""
    sleep: bool = False
    """Let POST /sleep free the GPU's memory while a trainer on the same GPU makes a step."""

    vllm: str = Field(default="", max_length=4000)
    """Further flags of vLLM, as in a shell: --vllm="--quantization fp8 --max-num-batched-tokens 16384"."""

    @field_validator("adapter_url")
    @classmethod
    def _valid_url(cls, url: str) -> str:
        return check_http_url(url) if url.startswith("http") else url

    @field_validator("vllm")
    @classmethod
    def _leaves_ours_alone(cls, flags: str) -> str:
        words = shlex.split(flags)  # raises ValueError
        if words and not vllm_flag(words[0]):
            raise ValueError(f"{words[0]!r} is not a flag such as --quantization")
        for name in map(vllm_flag, words):
            if stands_for := VLLM_OWNED.get(name) or VLLM_OWNED.get(name.removeprefix("no-")):
                raise ValueError(
                    f"--{name} is not free: {stands_for}"
                    if stands_for == _OURS
                    else f"--{name} is set by {stands_for}"
                )
        return flags

    @property
    def tensor_parallel_size(self) -> int:
        """How many GPUs share each layer of the model."""
        return self.device.count(",") + 1

    def further_routes(self, known: Set[str]) -> Set[str]:
        """The routes of `open_routes`. Raises `SetupError` if one is not among the `known` ones."""
        routes = {route.strip() for route in self.open_routes.split(",") if route.strip()}
        if routes - known:
            raise SetupError(f"vLLM has no route {', '.join(sorted(routes - known))} (open_routes)")
        return routes

    @property
    def local_model(self) -> Path | None:
        """The model's absolute directory; None for a Hugging Face id. Raises as `rookery.hub.local_model`."""
        folder = local_model(self.model)
        return folder and folder.resolve()

    @property
    def model_dir(self) -> Path:
        """The base model's directory; a Hugging Face id is downloaded if needed. Raises `SetupError` if
        `model` is neither a model directory nor an id that can be downloaded."""
        return self.local_model or model_folder(self.model)

    @property
    def served_name(self) -> str:
        """The base model's name in the API: the directory's own name, or the Hugging Face id."""
        local = self.local_model
        return local.name if local else self.model

    @property
    def base_names(self) -> frozenset[str]:
        """The names by which an adapter may refer to this base model."""
        local = self.local_model
        return frozenset({self.model, self.served_name} | ({str(local)} if local else set()))
