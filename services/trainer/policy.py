"""The policy that learns: a causal LM with a LoRA adapter, and log-probabilities under it."""

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load, save
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from services.trainer.head import TokenScores, Wanted, score_tokens
from services.trainer.settings import TrainerSettings
from services.trainer.tensors import MicroBatch


class Policy:
    """A frozen base with a trainable adapter in float32."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.device = _device(settings.device)
        self.base_model = str(settings.model)
        dtype = torch.float32 if self.device.type == "cpu" else torch.bfloat16
        torch.manual_seed(settings.seed)
        disable_progress_bar()  # the run has its own; in a log it is noise
        base = AutoModelForCausalLM.from_pretrained(settings.model, dtype=dtype, attn_implementation="sdpa")
        if settings.gradient_checkpointing:
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.enable_input_require_grads()
        config = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            target_modules=settings.lora_targets.split(","),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        )
        self.model: Any = get_peft_model(base, config).to(self.device).train()
        self._causal_lm: Any = self.model.get_base_model()

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What the optimizer moves."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def score(self, batch: MicroBatch, *, wanted: Wanted = Wanted(), reference: bool = False) -> TokenScores:  # noqa: B008 - frozen
        """Log-probability, entropy and, on demand, KL of each completion token.

        `reference` adds a second forward pass, without gradient and with the adapter off, for the scores
        against the base model.
        """
        reference_ND = self._reference_hidden(batch) if reference else None
        head = self._causal_lm.get_output_embeddings()
        return score_tokens(
            head,
            self._hidden(batch),
            batch.targets_N,
            vocabulary=head.weight.shape[0],
            temperature=batch.temperature,
            reference_ND=reference_ND,
            wanted=wanted,
        )

    def _hidden(self, batch: MicroBatch) -> torch.Tensor:
        """The last hidden states that predict a completion token, [N, D]."""
        hidden_BTD = self._causal_lm.model(
            input_ids=batch.input_ids_BT,
            position_ids=batch.position_ids_BT,
            attention_mask=batch.mask_B1TT,
            use_cache=False,
        ).last_hidden_state
        hidden_ND: torch.Tensor = hidden_BTD.flatten(0, 1)[batch.predictor_N]
        return hidden_ND

    def _reference_hidden(self, batch: MicroBatch) -> torch.Tensor:
        with torch.no_grad(), self.model.disable_adapter():
            return self._hidden(batch)

    def adapter_files(self) -> dict[str, bytes]:
        """The adapter as PEFT writes it and vLLM reads it, by file name."""
        weights = {
            name: tensor.detach().to("cpu", torch.float32).contiguous()
            for name, tensor in get_peft_model_state_dict(self.model).items()
        }
        config = self.model.peft_config["default"].to_dict()
        config["base_model_name_or_path"] = self.base_model
        config["inference_mode"] = True
        config["target_modules"] = sorted(config["target_modules"])
        text = json.dumps(config, indent=2, sort_keys=True, default=str)
        return {"adapter_model.safetensors": save(weights), "adapter_config.json": text.encode()}

    def load_adapter(self, folder: Path) -> None:
        """Takes the weights of a committed adapter."""
        weights = load((folder / "adapter_model.safetensors").read_bytes())
        set_peft_model_state_dict(self.model, weights)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(f"cuda:{name}" if name.isdigit() else name)
