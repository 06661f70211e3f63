"""Files of a run: tensors written piece by piece, JSON that is checked when read, and syncing to disk.

Tensors are written piece by piece so that no copy of a whole model is made in memory. Files that must survive
a power cut are synced to disk before they are renamed into place.
"""

import hashlib
import json
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Self, TypeAlias, cast

import torch
from rich.progress import open as open_shown

from rookery.errors import InvalidInput, SetupError
from rookery.files import sync
from rookery.hub import CONFIG_FILE
from rookery.terminal import SafeConsole
from services.trainer.distributed.placement import full_tensor

_DTYPES = {
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""Types and their names in a header, in the order of safetensors, which stores the last of these first."""

_SHOWN_BYTES = 1 << 30
"""Files of at least this size show a progress bar while they are read."""

_RANK = {dtype: rank for rank, dtype in enumerate(_DTYPES)}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor to write. `read` returns it, on any device; it is called only when the tensor is written."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]

    @classmethod
    def of(cls, tensor: torch.Tensor, *, dtype: torch.dtype | None = None, transposed: bool = False) -> Self:
        """Describes `tensor`, which is read when it is written. A sharded one needs all processes then."""
        detached = tensor.detach()
        if transposed:
            return cls(tuple(detached.shape[::-1]), dtype or detached.dtype, lambda: full_tensor(detached).T)
        return cls(tuple(detached.shape), dtype or detached.dtype, lambda: full_tensor(detached))


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A safetensors file with the same bytes that `safetensors.torch.save` would write. Format:
    https://huggingface.co/docs/safetensors/index#format"""

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yields the header, then each tensor. Raises `ValueError` if a tensor has another shape than its
        description."""
        ordered = sorted(self.tensors.items(), key=lambda item: (-_RANK[item[1].dtype], item[0]))
        header: dict[str, object] = {"__metadata__": dict(self.metadata)} if self.metadata else {}
        end = 0
        for name, stored in ordered:
            start, end = end, end + prod(stored.shape) * stored.dtype.itemsize
            header[name] = {
                "dtype": _DTYPES[stored.dtype],
                "shape": stored.shape,
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        yield struct.pack("<Q", len(text)) + text
        for name, stored in ordered:
            tensor = stored.read().to("cpu", stored.dtype).contiguous()
            if tuple(tensor.shape) != stored.shape:
                raise ValueError(f"tensor {name!r} has shape {list(tensor.shape)}, not {list(stored.shape)}")
            yield tensor.reshape(-1).view(torch.uint8).numpy().data


Content: TypeAlias = bytes | TensorFile


def pieces(content: Content) -> Iterator[bytes | memoryview]:
    """Yields the bytes of the file, in order."""
    yield from (content,) if isinstance(content, bytes) else content


def write_file(path: Path, content: Content) -> str:
    """Writes a file and returns its SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces(content):
            file.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def save_model(model: Any, folder: Path) -> None:
    """Writes a Hugging Face model. Its weights get its config's mode: safetensors lets no other user read."""
    model.save_pretrained(folder)
    mode = stat.S_IMODE((folder / CONFIG_FILE).stat().st_mode)
    for weights in folder.glob("*.safetensors"):  # several of a large model
        weights.chmod(mode)


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal. A process reads an unchanged file only once."""
    status = path.stat()
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, inode: int, size: int, modified_ns: int) -> str:
    del inode, modified_ns  # only part of the key
    name, hidden = f"SHA-256 of {path.name}", size < _SHOWN_BYTES
    with open_shown(
        path, "rb", description=name, console=SafeConsole(), transient=True, disable=hidden
    ) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def make_folder(folder: Path, *, setting: str) -> Path:
    """Returns the folder; makes it if it is missing. Raises `SetupError` if it cannot be made. `setting` is
    the name of the setting, for the message."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"{setting} {folder}: {error.strerror}") from error
    return folder


def sync_files(folder: Path) -> None:
    """Syncs every file of a folder, then its entries. The folder must not contain folders."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)


def read_object(path: Path, *needed: str) -> dict[str, Any]:
    """Returns the object in a file. Raises `InvalidInput` if it is missing, damaged, or lacks a `needed`
    key."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is missing or damaged: {error}") from error
    if not isinstance(value, dict) or (missing := set(needed) - value.keys()):
        lacks = (
            "is not a JSON object" if not isinstance(value, dict) else f"lacks {', '.join(sorted(missing))}"
        )
        raise InvalidInput(f"{path} {lacks}: {str(value)[:120]!r}")
    return value
