"""What vLLM's workers learn beside their own methods: to take other weights.

vLLM 0.32 can reload weights in place, but passes a tied head over: no tensor bears its name. On a GPU it
shares the embedding's memory and follows. On the CPU build every matrix, the head too, is also kept in a
packed form for its products, and the head's stays that of the old weights: hidden states of one version
under the head of another. So it is packed anew here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.inference.server.whole_model import weight_files


class WeightSwapping:
    """Mixed into vLLM's worker by `--worker-extension-cls`."""

    model_runner: Any

    def swap_weights(self, folder: str) -> None:
        """Overwrites all weights with those of a model directory."""
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

        # Not `weights_path`: vLLM would take every safetensors file there, the optimizer's moments too.
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
