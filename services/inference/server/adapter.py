"""What a LoRA adapter on disk must be before vLLM may see it.

Reads JSON, the header of the safetensors file and its bytes for the checksum; never a pickle, never
a path outside the adapter root. Whether vLLM can load it and what it answers is decided elsewhere.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from rookery.errors import InvalidInput
from rookery.trace import Adapter

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"

TARGET_MODULES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"}
)
"""Attention and MLP projections. Never lm_head or embeddings: vLLM drops their delta from some paths."""

_MAX_CONFIG_BYTES = 1 << 20
_MAX_HEADER_BYTES = 16 << 20
_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True)
class AdapterRules:
    """What this server accepts: where from, for which base model, how large."""

    root: Path
    base_names: frozenset[str]
    max_rank: int
    target_modules: frozenset[str] = TARGET_MODULES


class _LoraConfig(BaseModel):
    """The part of PEFT's adapter_config.json that decides whether vLLM serves what was trained."""

    peft_type: Literal["LORA"]
    r: int = Field(ge=1)
    target_modules: list[str]
    rank_pattern: dict[str, int] | None = None
    bias: Literal["none"] = "none"
    lora_bias: Literal[False] = False
    use_dora: Literal[False] = False
    modules_to_save: None = None


class _Tensor(BaseModel):
    dtype: Literal["F32", "F16", "BF16"]
    shape: tuple[int, int]
    data_offsets: tuple[int, int]


_HEADER: TypeAdapter[dict[str, _Tensor]] = TypeAdapter(dict[str, _Tensor])


def verify(adapter: Adapter, rules: AdapterRules) -> Adapter:
    """The adapter with its path resolved, once everything about it holds. Reads the whole file.

    Raises:
        InvalidInput: something does not; the message quotes it.
    """
    if adapter.base_model not in rules.base_names:
        raise InvalidInput(f"base model {adapter.base_model!r}: this server has {sorted(rules.base_names)}")
    try:
        folder = _inside(adapter.path, rules.root)
        _check_config(folder / CONFIG_FILE, rules)
        _check_tensors(folder / WEIGHTS_FILE, rules)
        _check_sha256(folder / WEIGHTS_FILE, adapter.version.sha256)
    except (OSError, ValueError) as error:
        # Files of another user, a name too long or with a zero byte, a folder pruned half-way.
        raise InvalidInput(f"adapter path {adapter.path[:200]!r}: {error}") from error
    return replace(adapter, path=str(folder))


def _inside(path: str, root: Path) -> Path:
    resolved_root = root.resolve()
    folder = (resolved_root / path).resolve()
    if not folder.is_relative_to(resolved_root):
        raise InvalidInput(f"adapter path {path!r} leads to {folder}, outside the root {resolved_root}")
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        if not (folder / name).is_file():
            raise InvalidInput(f"adapter path {path!r} has no {name}")
        if not (folder / name).resolve().is_relative_to(resolved_root):
            raise InvalidInput(f"{name} of adapter path {path!r} leads outside the root {resolved_root}")
    return folder


def _check_config(path: Path, rules: AdapterRules) -> None:
    if path.stat().st_size > _MAX_CONFIG_BYTES:
        raise InvalidInput(f"{path}: {path.stat().st_size} bytes, at most {_MAX_CONFIG_BYTES}")
    try:
        config = _LoraConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InvalidInput(f"{path}: {_readable(error)}") from error
    rank = max(config.r, *(config.rank_pattern or {}).values(), 0)
    if rank > rules.max_rank:
        raise InvalidInput(f"{path}: rank {rank}, at most {rules.max_rank} (--max-lora-rank)")
    refused = sorted(set(config.target_modules) - rules.target_modules)
    if refused:
        raise InvalidInput(f"{path}: target_modules {refused} are not among {sorted(rules.target_modules)}")


def _check_tensors(path: Path, rules: AdapterRules) -> None:
    header, data_bytes = _header(path)
    if not header:
        raise InvalidInput(f"{path}: no tensors")
    for name, tensor in header.items():
        _check_tensor(f"{path}: tensor {name!r}", name, tensor, rules)
        if tensor.data_offsets[1] > data_bytes:
            raise InvalidInput(
                f"{path}: tensor {name!r} ends at byte {tensor.data_offsets[1]} of {data_bytes}: cut short"
            )


def _check_tensor(where: str, name: str, tensor: _Tensor, rules: AdapterRules) -> None:
    module, _, kind = name.removesuffix(".weight").rpartition(".")
    if kind not in {"lora_A", "lora_B"} or module.rpartition(".")[2] not in rules.target_modules:
        raise InvalidInput(f"{where} is no LoRA weight of {sorted(rules.target_modules)}")
    rank = tensor.shape[0] if kind == "lora_A" else tensor.shape[1]
    if not 1 <= rank <= rules.max_rank:
        raise InvalidInput(f"{where} has rank {rank}, allowed are 1 to {rules.max_rank}")
    start, end = tensor.data_offsets
    if end - start != prod(tensor.shape) * _DTYPE_BYTES[tensor.dtype]:
        raise InvalidInput(f"{where}: {end - start} bytes for {tensor.dtype} {list(tensor.shape)}")


def _header(path: Path) -> tuple[Mapping[str, _Tensor], int]:
    """The tensors that the file claims to hold, and the bytes it has for them."""
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= _MAX_HEADER_BYTES:
            raise InvalidInput(f"{path} is no safetensors file: header of {size} bytes")
        raw = file.read(size)
    try:
        header: dict[str, Any] = json.loads(raw)
        header.pop("__metadata__", None)
        return _HEADER.validate_python(header), path.stat().st_size - 8 - size
    except ValidationError as error:
        raise InvalidInput(f"{path}: {_readable(error)}") from error
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{path} is no safetensors file: {error}") from error


def _check_sha256(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise InvalidInput(f"{path} has sha256 {actual}, not {expected!r}")


def _readable(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in e['loc']) or 'file'}: {e['msg']} (got {str(e['input'])[:100]!r})"
        for e in error.errors(include_url=False)[:3]
    )
