"""Checks on untrusted files: paths inside a root, safetensors headers, checksums.

Never reads a pickle. `adapter` and `full_weights` decide which tensors are valid.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from rookery.errors import InvalidInput, validation_message
from rookery.hub import DIGEST

_MAX_HEADER_BYTES = 16 << 20
_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class Tensor(BaseModel):
    """The header's entry for one tensor; offsets count from the end of the header."""

    dtype: Literal["F32", "F16", "BF16"]
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER: TypeAdapter[dict[str, Tensor]] = TypeAdapter(dict[str, Tensor])


def check_base(said: str, own: frozenset[str]) -> None:
    """Checks that a version's base model `said` is this server's, whose names are `own`.

    If both sides know the digest of the weights (`NAME@sha256:...`, see `rookery.hub`), digests are compared,
    otherwise names.

    Raises:
        InvalidInput: it is another base model; the message quotes both.
    """
    name, _, digest = said.partition(f"@{DIGEST}")
    by_content = digest and any(other.startswith(DIGEST) for other in own)
    if (f"{DIGEST}{digest}" if by_content else name) not in own:
        raise InvalidInput(f"base model {said!r}: this server has {sorted(own)}")


def resolve_inside(path: str, root: Path, *, names: Iterable[str]) -> Path:
    """Resolves the folder `path`, absolute or relative to `root`.

    The folder, and the files `names` in it, must be inside `root` after links are resolved.

    Raises:
        InvalidInput: the folder or a file is outside `root`, or a file is missing.
    """
    resolved_root = root.resolve()
    folder = (resolved_root / path).resolve()
    if not folder.is_relative_to(resolved_root):
        raise InvalidInput(f"adapter path {path!r} resolves to {folder}, outside the root {resolved_root}")
    for name in names:
        if not (folder / name).is_file():
            raise InvalidInput(f"adapter path {path!r} has no {name}")
        if not (folder / name).resolve().is_relative_to(resolved_root):
            raise InvalidInput(f"{name} of adapter path {path!r} resolves outside the root {resolved_root}")
    return folder


def read_header(path: Path) -> tuple[Mapping[str, Tensor], int]:
    """Returns the tensors in the header of a safetensors file, and the number of bytes after the header.

    Raises:
        InvalidInput: it is not a safetensors file.
    """
    with path.open("rb") as file:
        start = file.read(8)
        size = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= size <= _MAX_HEADER_BYTES:
            raise InvalidInput(f"{path} is not a safetensors file: header of {size} bytes")
        raw = file.read(size)
    try:
        header: dict[str, Any] = json.loads(raw)
        header.pop("__metadata__", None)
        return _HEADER.validate_python(header), path.stat().st_size - 8 - size
    except ValidationError as error:
        details = error.errors(include_url=False)[:3]
        raise InvalidInput(f"{path}: {validation_message(details, root='file')}") from error
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a safetensors file: {error}") from error


def check_extent(where: str, tensor: Tensor, data_bytes: int) -> None:
    """Checks that a tensor's bytes match its shape and are inside the file.

    Raises:
        InvalidInput: they do not match, or the file is cut short.
    """
    start, end = tensor.data_offsets
    if end - start != prod(tensor.shape) * _DTYPE_BYTES[tensor.dtype]:
        raise InvalidInput(f"{where}: {end - start} bytes for {tensor.dtype} {list(tensor.shape)}")
    if end > data_bytes:
        raise InvalidInput(f"{where} ends at byte {end} of {data_bytes}: cut short")


def check_sha256(path: Path, expected: str) -> None:
    """Checks a file's SHA-256. Reads the whole file.

    Raises:
        InvalidInput: the file has another checksum.
    """
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise InvalidInput(f"{path} has sha256 {actual}, not {expected!r}")
