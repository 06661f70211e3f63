"""Policies whose versions are whole models, and the choice of a policy by the settings.

`WholePolicy` and, for a GPT-2, `Gpt2Policy` train every weight; their base is a frozen copy. A commit has the
whole model in the form that transformers and vLLM load, with its tokenizer. `MergedPolicy` trains a LoRA
adapter on a GPT-2. vLLM does not support LoRA for GPT-2, so a commit also has the model with the adapter
merged.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.utils.logging import disable_progress_bar

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.hub import CONFIG_FILE, WEIGHTS_FILE, is_gpt2, model_folder, weight_files
from services.trainer.attention import hugging_face
from services.trainer.batches.micro_batches import MicroBatch
from services.trainer.distributed.placement import place_model
from services.trainer.gpt2 import loader
from services.trainer.gpt2.model import Gpt2
from services.trainer.model.base_model import Head, load_causal_lm
from services.trainer.model.policy import Policy, packed_hidden
from services.trainer.versions.files import Content, StoredTensor, TensorFile

TOKENIZER_FILES = (
    "chat_template.jinja", "generation_config.json", "merges.txt", "special_tokens_map.json",
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json",
)  # fmt: skip
"""Files of a model directory that a commit copies from the base, because training does not change them."""


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """The contents of the `TOKENIZER_FILES` that the directory has, by name."""
    paths = {name: folder / name for name in TOKENIZER_FILES}
    return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}


class WholePolicy(Policy):
    """Trains all weights in float32. With bf16, matrix products are in bfloat16."""

    def _build(self, settings: TrainerSettings) -> None:
        self._settings, self._folder = settings, Path(settings.model)
        self.model = self._load_base().train()
        self._frozen: Any = None

    def _load_base(self) -> Any:
        disable_progress_bar()
        model = load_causal_lm(self._folder, dtype=torch.float32)
        self._check_names(model)
        hugging_face.enable(model)
        if self._settings.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model = place_model(model, self.device, sharding="none")
        if self._settings.compile:
            model.base_model.compile(dynamic=True)
        return model

    def _check_names(self, model: Any) -> None:
        """Raises `SetupError` if weights have other names than in the files, by which vLLM knows them."""
        stored: set[str] = set()
        for path in weight_files(self._folder):
            with safe_open(path, framework="pt") as file:
                stored |= set(file.keys())
        if unknown := sorted({name for name, _ in model.named_parameters()} - stored):
            raise SetupError(
                f"--lora-rank 0: the files of {str(self._folder)!r} do not have {unknown[0]!r}, one of "
                f"{len(unknown)} weights that transformers converts; train an adapter instead"
            )

    def _model_files(self) -> dict[str, Content]:
        """Returns the files of a model directory."""
        weights = {name: StoredTensor.of(weight) for name, weight in self.model.named_parameters()}
        return {
            **tokenizer_files(self._folder),
            WEIGHTS_FILE: TensorFile(weights, {"format": "pt"}),
            CONFIG_FILE: (self._folder / CONFIG_FILE).read_bytes(),
        }

    def _load_model(self, folder: Path) -> None:
        with safe_open(folder / WEIGHTS_FILE, framework="pt") as file, torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(file.get_tensor(name))

    def _head(self, model: Any = None) -> Head:
        head = Head.of(model or self.model)

        def products(hidden_ND: torch.Tensor) -> torch.Tensor:
            with self._precision():
                return head.linear(hidden_ND)

        return replace(head, linear=products)

    def _hidden(self, batch: MicroBatch, model: Any = None) -> torch.Tensor:
        with self._precision():
            return packed_hidden((model or self.model).base_model, batch)

    def _reference(self, batch: MicroBatch) -> tuple[torch.Tensor, Head]:
        """Returns the hidden states and the head of the base. The policy's own head is trained too."""
        if self._frozen is None:  # only loaded when a KL needs it
            self._frozen = self._load_base().requires_grad_(False)
        with torch.no_grad():
            return self._hidden(batch, self._frozen), self._head(self._frozen)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.in_bf16)


class Gpt2Policy(WholePolicy):
    """A GPT-2 in this project's own code."""

    def _load_base(self) -> Gpt2:
        settings = self._settings
        model: Gpt2 = place_model(loader.load(self._folder), self.device, sharding=settings.sharding)
        model.gradient_checkpointing = settings.gradient_checkpointing
        if settings.compile:
            model.hidden = torch.compile(model.hidden, dynamic=True)  # type: ignore[method-assign]
        return model

    def _model_files(self) -> dict[str, Content]:
        """Returns the files of a model directory."""
        config: dict[str, Any] = json.loads((self._folder / CONFIG_FILE).read_text())
        return {**tokenizer_files(self._folder), **loader.files(self.model, config=config)}

    def _load_model(self, folder: Path) -> None:
        loader.load_weights(self.model, folder)

    def _hidden(self, batch: MicroBatch, model: Any = None) -> torch.Tensor:
        with self._precision():
            hidden_1TD = (model or self.model).hidden(
                batch.input_ids_1T, position_ids_BT=batch.position_ids_1T, mask=batch.blocks
            )
        return hidden_1TD[0, batch.predictor_N]


class MergedPolicy(Policy):
    """A policy that is trained as an adapter and served as a whole model."""

    def _build(self, settings: TrainerSettings) -> None:
        self._folder = Path(settings.model)
        super()._build(settings)

    def _model_files(self) -> dict[str, Content]:
        """Returns the adapter's weights, to resume from, and the files of the merged model."""
        adapter = super()._model_files()
        del adapter["adapter_config.json"]  # transformers would read it and apply the adapter twice
        return {
            **tokenizer_files(self._folder),
            **adapter,
            WEIGHTS_FILE: TensorFile(self._merged(), {"format": "pt"}),
            CONFIG_FILE: (self._folder / CONFIG_FILE).read_bytes(),
        }

    def _merged(self) -> dict[str, StoredTensor]:
        from peft.tuners.lora import LoraLayer

        base = self.model.get_base_model()
        weights = {
            name.replace(".base_layer.", "."): StoredTensor.of(weight, dtype=torch.float32)
            for name, weight in base.named_parameters()
            if ".lora_" not in name
        }
        for name, module in base.named_modules():
            if isinstance(module, LoraLayer):
                weights[f"{name}.weight"] = _add_delta(weights[f"{name}.weight"], module)
        return weights


def _add_delta(weight: StoredTensor, module: Any) -> StoredTensor:
    def merged() -> torch.Tensor:
        delta = StoredTensor.of(module.get_delta_weight("default")).read()
        return weight.read().to("cpu", torch.float32) + delta.to("cpu", torch.float32)

    return replace(weight, read=merged)


def build_policy(settings: TrainerSettings) -> Policy:
    """Builds the policy: with a value head for PPO, and without an adapter if the LoRA rank is 0. Raises
    `SetupError` if there is no such model, or the settings cannot train it."""
    folder = model_folder(str(settings.model))
    settings.check_model(folder)
    adapted, whole = (MergedPolicy, Gpt2Policy) if is_gpt2(folder) else (Policy, WholePolicy)
    kind = adapted if settings.lora_rank else whole
    policy = kind(settings.model_copy(update={"model": str(folder)}))
    policy.base_model = str(settings.model)  # servers compare this name with their own --model
    return policy
