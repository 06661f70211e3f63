"""Checks on untrusted files: paths inside a root, safetensors headers, checksums.

Never reads a pickle. `adapter` and `full_weights` decide which tensors are valid.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from rookery.errors import InvalidInput
from rookery.hub import DIGEST

_DTYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a safetensors header says about one tensor."""

    dtype: str
    shape: tuple[int, ...]


def check_base(said: str, own: frozenset[str]) -> None:
    """Checks that a version's base model `said` is this server's, whose names are `own`.

    If both sides know the digest of the weights (`NAME@sha256:...`, see `rookery.hub`), digests are compared,
    otherwise names. Raises `InvalidInput` if it is another base model; the message quotes both.
    """
    name, _, digest = said.partition(f"@{DIGEST}")
    by_content = digest and any(name.startswith(DIGEST) for name in own)
    if (f"{DIGEST}{digest}" if by_content else name) not in own:
        raise InvalidInput(f"base model {said!r}: this server has {sorted(own)}")


def resolve_inside(path: str, root: Path, *, names: Iterable[str]) -> Path:
    """Resolves the folder `path`, absolute or relative to `root`.

    The folder, and the files `names` in it, must be inside `root` after links are resolved. Raises
    `InvalidInput` if the folder or a file is outside `root`, or a file is missing.
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


def read_header(path: Path) -> dict[str, Tensor]:
    """Returns the tensors in the header of a safetensors file. Their bytes are all in the file. Raises
    `InvalidInput` if it is not a safetensors file, or it is cut short."""
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            return {name: Tensor(s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
    except SafetensorError as error:
        raise InvalidInput(f"{path} is not a whole safetensors file: {error}") from error


def check_dtype(where: str, tensor: Tensor) -> None:
    """Checks that a tensor holds numbers of a type that vLLM loads as weights. Raises `InvalidInput` if it
    does not."""
    if tensor.dtype not in _DTYPES:
        raise InvalidInput(f"{where} has dtype {tensor.dtype}: it must be one of {', '.join(_DTYPES)}")


def check_sha256(path: Path, expected: str) -> None:
    """Checks a file's SHA-256. Reads the whole file. Raises `InvalidInput` if the file has another
    checksum."""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise InvalidInput(f"{path} has sha256 {actual}, not {expected!r}")
