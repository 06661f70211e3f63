"""A LoRA adapter over a GPT-2, to which vLLM can add none: a commit holds it merged into its base, too."""

from dataclasses import replace

import torch
from peft.tuners.lora import LoraLayer

from rookery.errors import SetupError
from services.trainer.gpt2.config import CONFIG_FILE
from services.trainer.gpt2.loader import WEIGHTS_FILE
from services.trainer.gpt2.policy import beside
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.versions.tensor_file import Content, Stored, TensorFile


class MergedPolicy(Policy):
    """A policy that is trained as an adapter and served as a whole model."""

    def _build(self, settings: TrainerSettings) -> None:
        if settings.int8_base:
            raise SetupError("--int8-base: a GPT-2 is served merged, which needs the base's own weights")
        self._folder = settings.model
        super()._build(settings)

    def version_files(self) -> dict[str, Content]:
        """Returns the adapter's weights, to resume from, and the files of the merged model."""
        adapter = super().version_files()
        del adapter["adapter_config.json"]  # finding one, transformers would add the adapter once more
        merged: dict[str, Content] = {
            WEIGHTS_FILE: TensorFile(self._merged(), {"format": "pt"}),
            CONFIG_FILE: (self._folder / CONFIG_FILE).read_bytes(),
        }
        return {**beside(self._folder), **adapter, **merged}

    def _merged(self) -> dict[str, Stored]:
        base = self.model.get_base_model()
        weights = {
            name.replace(".base_layer.", "."): Stored.of(weight, dtype=torch.float32)
            for name, weight in base.named_parameters()
            if ".lora_" not in name
        }
        for name, module in base.named_modules():
            if isinstance(module, LoraLayer):
                weights[f"{name}.weight"] = _with_delta(weights[f"{name}.weight"], module)
        return weights


def _with_delta(weight: Stored, module: LoraLayer) -> Stored:
    def merged() -> torch.Tensor:
        delta = Stored.of(module.get_delta_weight("default")).read()
        return weight.read().to("cpu", torch.float32) + delta.to("cpu", torch.float32)

    return replace(weight, read=merged)
