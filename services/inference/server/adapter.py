"""Checks a LoRA adapter on disk before vLLM loads it.

Reads the JSON configuration, the header of the safetensors file, and the whole file for its checksum. It
never reads a pickle or a path outside the adapter root. `policies` checks whether vLLM can load the adapter
and answers with it.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError
from safetensors import safe_open

from rookery.errors import InvalidInput, validation_message
from rookery.trace import Adapter
from services.inference.server import file_checks

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

TARGET_MODULES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"}
)
"""Attention and MLP projections; not lm_head or embeddings, whose delta vLLM drops on some paths."""

_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterRules:
    """What this server accepts: the root directory, the base model's names, the largest rank."""

    root: Path
    base_names: frozenset[str]
    max_rank: int
    target_modules: frozenset[str] = TARGET_MODULES
    precision: float = 2.0**-23
    """Machine epsilon of the engine's data type (the distance from 1 to the next number); here float32's."""

    def verify(self, adapter: Adapter) -> Adapter:
        """Returns the adapter with its path resolved. Reads the whole file. Raises `InvalidInput` if a check
        fails; the message quotes the value."""
        file_checks.check_base(adapter.base_model, self.base_names)
        try:
            folder = file_checks.resolve_inside(adapter.path, self.root, names=(CONFIG_FILE, WEIGHTS_FILE))
            _check_config(folder / CONFIG_FILE, self)
            _check_tensors(folder / WEIGHTS_FILE, self)
            file_checks.check_sha256(folder / WEIGHTS_FILE, adapter.version.sha256)
        except (OSError, ValueError) as error:
            # For example another user's files, a name too long or with a zero byte, a half-deleted folder.
            raise InvalidInput(f"adapter path {adapter.path[:200]!r}: {error}") from error
        return replace(adapter, path=str(folder))

    def must_differ(self, adapter: Adapter) -> bool:
        """Whether the adapter changes the weights so much that rounding cannot hide it.

        A model's weights are about 0.01 to 0.1. A change above a tenth of the precision alters the last bits
        of many of the thousands of products, so it alters the canary's answer too. In float32 the first
        training step is far above that. In bfloat16 it may be below, and then an equal answer is accepted.
        """
        return weight_change(Path(adapter.path)) > self.precision / 10


class _LoraConfig(BaseModel):
    """The fields of PEFT's adapter_config.json that decide whether vLLM serves the adapter as trained."""

    peft_type: Literal["LORA"]
    r: int = Field(ge=1)
    lora_alpha: float = 8.0
    target_modules: list[str]
    rank_pattern: dict[str, int] | None = None
    bias: Literal["none"] = "none"
    lora_bias: Literal[False] = False
    use_dora: Literal[False] = False
    modules_to_save: None = None


def weight_change(folder: Path) -> float:
    """The largest root mean square, over the modules, of a verified adapter's change `alpha / r * B @ A`."""
    config = _LoraConfig.model_validate_json((folder / CONFIG_FILE).read_bytes())
    largest = 0.0
    with safe_open(folder / WEIGHTS_FILE, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - no mapping
            if "lora_B" not in name:
                continue
            b, a = file.get_tensor(name).double(), file.get_tensor(name.replace("lora_B", "lora_A")).double()
            # The squared norm of B A is the trace of (B'B)(AA'), which are r x r: B A itself is never built.
            squares = float(((b.T @ b) * (a @ a.T)).sum())
            largest = max(largest, squares / (b.shape[0] * a.shape[1]))
    return config.lora_alpha / config.r * math.sqrt(max(0.0, largest))


def _check_config(path: Path, rules: AdapterRules) -> None:
    if path.stat().st_size > _MAX_CONFIG_BYTES:
        raise InvalidInput(f"{path}: {path.stat().st_size} bytes, at most {_MAX_CONFIG_BYTES}")
    try:
        config = _LoraConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        details = error.errors(include_url=False)[:3]
        raise InvalidInput(f"{path}: {validation_message(details, root='file')}") from error
    rank = max(config.r, *(config.rank_pattern or {}).values(), 0)
    if rank > rules.max_rank:
        raise InvalidInput(f"{path}: rank {rank}, at most {rules.max_rank} (max_lora_rank)")
    refused = sorted(set(config.target_modules) - rules.target_modules)
    if refused:
        raise InvalidInput(f"{path}: target_modules {refused} are not among {sorted(rules.target_modules)}")


def _check_tensors(path: Path, rules: AdapterRules) -> None:
    header = file_checks.read_header(path)
    if not header:
        raise InvalidInput(f"{path}: no tensors")
    for name, tensor in header.items():
        file_checks.check_dtype(f"{path}: tensor {name!r}", tensor)
        _check_tensor(f"{path}: tensor {name!r}", name, tensor, rules)


def _check_tensor(where: str, name: str, tensor: file_checks.Tensor, rules: AdapterRules) -> None:
    module, _, kind = name.removesuffix(".weight").rpartition(".")
    if kind not in {"lora_A", "lora_B"} or module.rpartition(".")[2] not in rules.target_modules:
        raise InvalidInput(f"{where} is not a LoRA weight of {sorted(rules.target_modules)}")
    if len(tensor.shape) != 2:
        raise InvalidInput(f"{where} has shape {list(tensor.shape)}: it must be a matrix")
    rank = tensor.shape[0] if kind == "lora_A" else tensor.shape[1]
    if not 1 <= rank <= rules.max_rank:
        raise InvalidInput(f"{where} has rank {rank}: it must be 1 to {rules.max_rank}")
