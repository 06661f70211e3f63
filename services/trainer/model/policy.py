"""The policy in training: a causal LM with a LoRA adapter, and log-probabilities under it.

Other policies differ in the trained weights and the files of a commit: see `gpt2.policy`, `value_head`.
"""

from pathlib import Path
from typing import Any

import torch
from peft import set_peft_model_state_dict
from safetensors.torch import load
from transformers.utils.logging import disable_progress_bar

from services.trainer.batches.tensors import MicroBatch
from services.trainer.distributed.sharding import place
from services.trainer.fitting.backbone import load_causal_lm
from services.trainer.fitting.lora import adapter_files, with_adapter
from services.trainer.fitting.setup import device_named
from services.trainer.model import hf_attention, int8_base
from services.trainer.model.head import TokenScores, Wanted, score_tokens
from services.trainer.model.hf_attention import Sharing
from services.trainer.model.logits import Head
from services.trainer.settings import TrainerSettings
from services.trainer.versions.tensor_file import Content


class Policy:
    """A frozen base with a trainable adapter in float32."""

    model: Any
    """The module in training. It has Hugging Face's `get_output_embeddings`."""

    def __init__(self, settings: TrainerSettings) -> None:
        self.device = device_named(settings.device)
        self.base_model = str(settings.model)
        torch.manual_seed(settings.seed)
        self._build(settings)

    def _build(self, settings: TrainerSettings) -> None:
        disable_progress_bar()  # the run has its own, and a log should have none
        dtype = torch.float32 if self.device.type == "cpu" else torch.bfloat16
        if settings.int8_base:
            base = int8_base.load(settings.model, dtype=dtype, device=self.device)
        else:
            base = load_causal_lm(settings.model, dtype=dtype)
        hf_attention.use(base)
        if settings.gradient_checkpointing:
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.enable_input_require_grads()
        adapted = with_adapter(
            base, rank=settings.lora_rank, alpha=settings.lora_alpha, targets=settings.lora_targets
        )
        self.model = place(adapted, self.device, sharding=settings.sharding).train()
        self._body: Any = self.model.get_base_model().base_model

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that the optimizer updates."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def score(self, batch: MicroBatch, *, wanted: Wanted = Wanted(), reference: bool = False) -> TokenScores:  # noqa: B008 - frozen
        """Returns log-probability, entropy and, if requested, KL of each completion token.

        `reference` adds a forward pass of the base model, without gradient, for the scores against it.
        """
        reference_ND, reference_head = self._reference(batch) if reference else (None, None)
        return score_tokens(
            self._head(),
            self._hidden(batch),
            batch.targets_N,
            vocabulary=self.model.get_output_embeddings().weight.shape[0],
            temperature=batch.temperature,
            reference_ND=reference_ND,
            reference_head=reference_head,
            wanted=wanted,
        )

    def _head(self) -> Head:
        return Head.of(self.model)

    def _hidden(self, batch: MicroBatch) -> torch.Tensor:
        """Returns the last layer's hidden states that predict a completion token, [N, D]."""
        sharing = Sharing(batch.blocks)
        hidden_1TD = self._body(
            input_ids=batch.input_ids_1T,
            position_ids=batch.position_ids_1T,
            use_cache=False,
            sharing=sharing,
        ).last_hidden_state
        sharing.check(self._body)
        hidden_ND: torch.Tensor = hidden_1TD[0, batch.predictor_N]
        return hidden_ND

    def _reference(self, batch: MicroBatch) -> tuple[torch.Tensor, Head]:
        """Returns the hidden states with the adapter off, and the head, which has no adapter."""
        with torch.no_grad(), self.model.disable_adapter():
            return self._hidden(batch), self._head()

    def version_files(self) -> dict[str, Content]:
        """Returns the policy's files in a commit, by name: PEFT's files, which vLLM reads."""
        return dict(adapter_files(self.model, base_model=self.base_model))

    def load_version(self, folder: Path) -> None:
        """Loads the weights of a commit."""
        weights = load((folder / "adapter_model.safetensors").read_bytes())
        set_peft_model_state_dict(self.model, weights)
