"""What a whole model on disk must be before its weights may replace those that vLLM serves.

It must have the tensors of the base model, by name and shape, for vLLM keeps the base's configuration and
only overwrites numbers. Reads JSON, headers, and the file for its checksum.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rookery.errors import InvalidInput, SetupError
from rookery.trace import Adapter
from services.inference.server import files

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"

_FREE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
"""Keys of config.json that change no number."""

_NUMERIC = {
    "activation_function", "layer_norm_epsilon", "n_head", "reorder_and_upcast_attn",
    "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
}  # fmt: skip
"""Keys that change numbers and no shape: none may stand in one configuration alone."""

_MASK = re.compile(r".*\.attn\.(bias|masked_bias)")
_HEAD = "lm_head.weight"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What this server accepts: where from, and for which base model, which is a directory."""

    root: Path
    base_names: frozenset[str]
    base: Path
    _wanted: Mapping[str, tuple[int, ...]] = field(init=False)
    _config: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_config", _read_config(self.base))
            object.__setattr__(self, "_wanted", self._shapes(weight_files(self.base)))
        except (OSError, ValueError, KeyError, InvalidInput) as error:
            raise SetupError(f"base model {str(self.base)!r}: {error}") from error

    def verify(self, adapter: Adapter) -> Adapter:
        """The version with its path resolved, once everything about it holds. Reads the whole file.

        Raises:
            InvalidInput: something does not; the message quotes it.
        """
        files.check_base(adapter.base_model, self.base_names)
        try:
            folder = files.inside(adapter.path, self.root, names=(CONFIG_FILE, WEIGHTS_FILE))
            self._check_config(folder)
            self._check_tensors(folder / WEIGHTS_FILE)
            files.check_sha256(folder / WEIGHTS_FILE, adapter.version.sha256)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"model path {adapter.path[:200]!r}: {error}") from error
        return replace(adapter, path=str(folder))

    def must_differ(self, adapter: Adapter) -> bool:
        """Never: a version may be the base model itself, saved again."""
        return False

    def _check_config(self, folder: Path) -> None:
        config = _read_config(folder)
        # Writers of other versions leave out other defaults.
        for name in sorted(((config.keys() & self._config.keys()) | _NUMERIC) - _FREE):
            if config.get(name) != self._config.get(name):
                raise InvalidInput(
                    f"{folder / CONFIG_FILE}: {name} is {config.get(name)!r}, "
                    f"of the base model {self._config.get(name)!r}"
                )

    def _check_tensors(self, path: Path) -> None:
        shapes = self._shapes([path])
        for complaint, names in (
            ("missing", self._wanted.keys() - shapes.keys()),
            ("unknown", shapes.keys() - self._wanted.keys()),
            ("misshapen", {n for n in self._wanted.keys() & shapes if shapes[n] != self._wanted[n]}),
        ):
            if names:
                raise InvalidInput(f"{path}: {complaint} {', '.join(sorted(names)[:_SHOWN])}")

    def _shapes(self, paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
        """By name without a prefix. A tied head and the masks of old files are nobody's weights."""
        tied = self._config.get("tie_word_embeddings", True)
        shapes = {}
        for path in paths:
            header, data_bytes = files.read_header(path)
            for name, tensor in header.items():
                if _MASK.fullmatch(name) or (tied and name == _HEAD):
                    continue
                files.check_extent(f"{path}: tensor {name!r}", tensor, data_bytes)
                shapes[name.removeprefix("transformer.")] = tensor.shape
        return shapes


def _read_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / CONFIG_FILE).read_text())
    if not isinstance(config, dict):
        raise InvalidInput(f"{folder / CONFIG_FILE} holds no object")
    return config


def weight_files(folder: Path) -> list[Path]:
    """The files of a model's weights: one, or those that its index names. There may be others beside them."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    named = json.loads((folder / _INDEX_FILE).read_text())["weight_map"].values()
    return [folder / Path(name).name for name in sorted(set(named))]
