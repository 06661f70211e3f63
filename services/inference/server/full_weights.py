"""Versions with full weights: checks one on disk, and loads its weights in vLLM's worker.

A version's tensors must have the names and shapes of the base model's, because vLLM keeps the base model's
configuration and only overwrites the weights. Reads the JSON configuration, the safetensors headers, and the
whole file for its checksum.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import safe_open

from rookery.errors import InvalidInput, SetupError
from rookery.hub import CONFIG_FILE, WEIGHTS_FILE, weight_files
from rookery.trace import Adapter
from services.inference.server import file_checks

_FREE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
"""Keys of config.json that do not affect the computation."""

_NUMERIC = {
    "activation_function", "layer_norm_epsilon", "n_head", "reorder_and_upcast_attn",
    "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
}  # fmt: skip
"""Keys that affect the computation but no tensor's shape. They must agree even if only one side has them."""

_MASK = re.compile(r".*\.attn\.(bias|masked_bias)")
_HEAD = "lm_head.weight"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FullWeightsRules:
    """What this server accepts: the root directory, the base model's names and its directory `base`."""

    root: Path
    base_names: frozenset[str]
    base: Path
    _wanted: Mapping[str, tuple[int, ...]] = field(init=False)
    _config: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_config", _read_config(self.base))
            object.__setattr__(self, "_wanted", self._shapes(weight_files(self.base)))
        except (OSError, ValueError, InvalidInput) as error:
            raise SetupError(f"base model {str(self.base)!r}: {error}") from error

    def verify(self, adapter: Adapter) -> Adapter:
        """Returns the version with its path resolved. Reads the whole file. Raises `InvalidInput` if a check
        fails; the message quotes the value."""
        file_checks.check_base(adapter.base_model, self.base_names)
        try:
            folder = file_checks.resolve_inside(adapter.path, self.root, names=(CONFIG_FILE, WEIGHTS_FILE))
            self._check_config(folder)
            self._check_tensors(folder / WEIGHTS_FILE)
            file_checks.check_sha256(folder / WEIGHTS_FILE, adapter.version.sha256)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"model path {adapter.path[:200]!r}: {error}") from error
        return replace(adapter, path=str(folder))

    def must_differ(self, adapter: Adapter) -> bool:
        """Always False: a version may be a copy of the base model."""
        return False

    def _check_config(self, folder: Path) -> None:
        config = _read_config(folder)
        # Only keys that both have: transformers versions differ in which defaults they write.
        for name in sorted(((config.keys() & self._config.keys()) | _NUMERIC) - _FREE):
            if config.get(name) != self._config.get(name):
                raise InvalidInput(
                    f"{folder / CONFIG_FILE}: {name} is {config.get(name)!r}, "
                    f"in the base model {self._config.get(name)!r}"
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
        """Shapes by name, without the prefix `transformer.`. Skips a tied head and the masks of old files."""
        tied = self._config.get("tie_word_embeddings", True)
        shapes = {}
        for path in paths:
            for name, tensor in file_checks.read_header(path).items():
                if _MASK.fullmatch(name) or (tied and name == _HEAD):
                    continue
                file_checks.check_dtype(f"{path}: tensor {name!r}", tensor)
                shapes[name.removeprefix("transformer.")] = tensor.shape
        return shapes


def _read_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / CONFIG_FILE).read_text())
    if not isinstance(config, dict):
        raise InvalidInput(f"{folder / CONFIG_FILE} is not a JSON object")
    return config


class FullWeightsWorker:
    """A mixin for vLLM's workers that overwrites a model's weights, set by `--worker-extension-cls`.

    vLLM 0.32 can reload weights in place, but skips a tied head, because no tensor in the file has its name.
    On a GPU this is harmless: the head shares the embedding's memory. The CPU build also keeps a packed copy
    of every matrix for its products, and the head's copy would keep the old weights: one version's hidden
    states with another version's head. So `load_full_weights` packs the head again.
    """

    model_runner: Any

    def load_full_weights(self, folder: str) -> None:
        """Overwrites all weights with those in a model directory."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        # Not `weights_path`: vLLM would read every safetensors file there, also the optimizer's moments.
        self.reload_weights(weights_iterator=_tensors(Path(folder)))  # type: ignore[attr-defined]
        for module in self.model_runner.get_model().modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, file.get_tensor(name)
