"""A LoRA adapter over a GPT-2, to which vLLM can add none: a commit holds it merged into its base, too."""

import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import save

from rookery.errors import SetupError
from services.trainer.distributed.sharding import whole
from services.trainer.gpt2.config import CONFIG_FILE
from services.trainer.gpt2.loader import WEIGHTS_FILE
from services.trainer.gpt2.policy import beside
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings


class MergedPolicy(Policy):
    """Learns as an adapter, is served as a whole model."""

    def _build(self, settings: TrainerSettings) -> None:
        if settings.int8_base:
            raise SetupError("--int8-base: a GPT-2 is served merged, which needs the base's own weights")
        self._folder = settings.model
        super()._build(settings)

    def version_files(self) -> dict[str, bytes]:
        """The adapter's weights, from which a run resumes, and a model directory."""
        adapter = super().version_files()
        del adapter["adapter_config.json"]  # finding one, transformers would add the adapter once more
        merged = {
            WEIGHTS_FILE: save(self._merged(), metadata={"format": "pt"}),
            CONFIG_FILE: (self._folder / CONFIG_FILE).read_bytes(),
        }
        return {**beside(self._folder), **adapter, **merged}

    def _merged(self) -> dict[str, torch.Tensor]:
        base = self.model.get_base_model()
        weights = {
            name.replace(".base_layer.", "."): _stored(weight)
            for name, weight in base.named_parameters()
            if ".lora_" not in name
        }
        for name, module in base.named_modules():
            if isinstance(module, LoraLayer):
                added = _stored(module.get_delta_weight("default"))
                weights[f"{name}.weight"] = weights[f"{name}.weight"] + added
        return weights


def _stored(weight: torch.Tensor) -> torch.Tensor:
    return whole(weight.detach()).to("cpu", torch.float32).contiguous()
