"""GPT-2 as a policy that trains every weight; the base is a frozen copy.

A commit has the whole model in the form that transformers and vLLM load, with its tokenizer.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import torch

from services.trainer.batches.tensors import MicroBatch
from services.trainer.distributed.sharding import place
from services.trainer.gpt2 import loader
from services.trainer.gpt2.config import CONFIG_FILE
from services.trainer.gpt2.model import Gpt2
from services.trainer.model.logits import Head
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.versions.tensor_file import Content

BESIDE = (
    "generation_config.json", "merges.txt", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.json",
)  # fmt: skip
"""Files of a model directory that never change."""


def beside(folder: Path) -> dict[str, bytes]:
    """Those files, as far as the directory has them."""
    paths = {name: folder / name for name in BESIDE}
    return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}


class Gpt2Policy(Policy):
    """Weights in float32; on a GPU matrix products in bfloat16."""

    def _build(self, settings: TrainerSettings) -> None:
        self._folder = settings.model
        self._sharding = settings.sharding
        self.model: Gpt2 = self._loaded().train()
        self.model.gradient_checkpointing = settings.gradient_checkpointing
        self._frozen: Gpt2 | None = None

    def _loaded(self) -> Gpt2:
        model: Gpt2 = place(loader.load(self._folder), self.device, sharding=self._sharding)
        return model

    def version_files(self) -> dict[str, Content]:
        """What a commit holds of the policy, by file name: a model directory."""
        config: dict[str, Any] = json.loads((self._folder / CONFIG_FILE).read_text())
        return {**beside(self._folder), **loader.files(self.model, config=config)}

    def load_version(self, folder: Path) -> None:
        """Loads the weights of a commit."""
        loader.load_weights(self.model, folder)

    def _head(self) -> Head:
        return self._head_of(self.model)

    def _head_of(self, model: Gpt2) -> Head:
        def logits(hidden_ND: torch.Tensor) -> torch.Tensor:
            with self._precision():
                logits_NV: torch.Tensor = model.lm_head(hidden_ND)
            return logits_NV

        return Head(logits)

    def _hidden(self, batch: MicroBatch) -> torch.Tensor:
        return self._hidden_of(self.model, batch)

    def _hidden_of(self, model: Gpt2, batch: MicroBatch) -> torch.Tensor:
        with self._precision():
            hidden_1TD = model.hidden(
                batch.input_ids_1T, position_ids_BT=batch.position_ids_1T, sees=batch.blocks
            )
        return hidden_1TD[0, batch.predictor_N]

    def _reference(self, batch: MicroBatch) -> tuple[torch.Tensor, Head]:
        """Returns the hidden states and the head of the base, because the policy's head is trained too."""
        if self._frozen is None:  # a run without KL never needs it
            self._frozen = self._loaded().requires_grad_(False)
        with torch.no_grad():
            return self._hidden_of(self._frozen, batch), self._head_of(self._frozen)

    def _precision(self) -> contextlib.AbstractContextManager[None]:
        context: contextlib.AbstractContextManager[None] = torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"
        )
        return context
