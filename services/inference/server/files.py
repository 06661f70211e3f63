"""Files that came from elsewhere: paths that stay inside a root, headers of safetensors, checksums.

Never a pickle. What the tensors must be is decided elsewhere.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from rookery.errors import InvalidInput
from rookery.hub import DIGEST

_MAX_HEADER_BYTES = 16 << 20
_DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class Tensor(BaseModel):
    """What a header says of one tensor; offsets count from the end of the header."""

    dtype: Literal["F32", "F16", "BF16"]
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER: TypeAdapter[dict[str, Tensor]] = TypeAdapter(dict[str, Tensor])


def check_base(said: str, own: frozenset[str]) -> None:
    """Whether a version of the base model `said` fits a server that knows its own by the names `own`.

    Weights decide where both sides know their digest (`NAME@sha256:...`, see `rookery.hub`), else the name.

    Raises:
        InvalidInput: it does not; the message quotes both.
    """
    name, _, digest = said.partition(f"@{DIGEST}")
    by_content = digest and any(other.startswith(DIGEST) for other in own)
    if (f"{DIGEST}{digest}" if by_content else name) not in own:
        raise InvalidInput(f"base model {said!r}: this server has {sorted(own)}")


def inside(path: str, root: Path, *, names: Iterable[str]) -> Path:
    """The folder `path`, absolute or below `root`, once it and those files in it lie inside, links resolved.

    Raises:
        InvalidInput: it or one of them leads outside, or a file is not there.
    """
    resolved_root = root.resolve()
    folder = (resolved_root / path).resolve()
    if not folder.is_relative_to(resolved_root):
        raise InvalidInput(f"adapter path {path!r} leads to {folder}, outside the root {resolved_root}")
    for name in names:
        if not (folder / name).is_file():
            raise InvalidInput(f"adapter path {path!r} has no {name}")
        if not (folder / name).resolve().is_relative_to(resolved_root):
            raise InvalidInput(f"{name} of adapter path {path!r} leads outside the root {resolved_root}")
    return folder


def read_header(path: Path) -> tuple[Mapping[str, Tensor], int]:
    """The tensors that a safetensors file claims to hold, and the bytes it has for them.

    Raises:
        InvalidInput: it is no such file.
    """
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
        raise InvalidInput(f"{path}: {readable(error)}") from error
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{path} is no safetensors file: {error}") from error


def check_extent(where: str, tensor: Tensor, data_bytes: int) -> None:
    """Whether a tensor's bytes fit its shape, and the file.

    Raises:
        InvalidInput: they do not.
    """
    start, end = tensor.data_offsets
    if end - start != prod(tensor.shape) * _DTYPE_BYTES[tensor.dtype]:
        raise InvalidInput(f"{where}: {end - start} bytes for {tensor.dtype} {list(tensor.shape)}")
    if end > data_bytes:
        raise InvalidInput(f"{where} ends at byte {end} of {data_bytes}: cut short")


def check_sha256(path: Path, expected: str) -> None:
    """Reads the whole file.

    Raises:
        InvalidInput: it has another checksum.
    """
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise InvalidInput(f"{path} has sha256 {actual}, not {expected!r}")


def readable(error: ValidationError) -> str:
    """What pydantic says, in one line."""
    return "; ".join(
        f"{'.'.join(str(part) for part in e['loc']) or 'file'}: {e['msg']} (got {str(e['input'])[:100]!r})"
        for e in error.errors(include_url=False)[:3]
    )
