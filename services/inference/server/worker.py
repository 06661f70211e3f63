"""An extension of vLLM's workers that overwrites a model's weights.

vLLM 0.32 can reload weights in place, but skips a tied head, because no tensor in the file has its name. On a
GPU this is harmless: the head shares the embedding's memory. The CPU build also keeps a packed copy of every
matrix for its products, and the head's copy would keep the old weights: one version's hidden states with
another version's head. So `swap_weights` packs the head again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.inference.server.whole_model import weight_files


class WeightSwapping:
    """A mixin for vLLM's worker, set by `--worker-extension-cls`."""

    model_runner: Any

    def swap_weights(self, folder: str) -> None:
        """Overwrites all weights with those in a model directory."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        # Not `weights_path`: vLLM would read every safetensors file there, also the optimizer's moments.
        self.reload_weights(weights_iterator=_tensors(Path(folder)))  # type: ignore[attr-defined]
        for module in self.model_runner.get_model().modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, file.get_tensor(name)
