"""The policy in training: a causal LM with a LoRA adapter, log-probabilities under it, and PPO's value head.

The policies in `policies` differ in the trained weights and the files of a commit.
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load
from transformers.utils.logging import disable_progress_bar

from rookery.config.trainer import TrainerSettings
from services.trainer.attention import hugging_face
from services.trainer.attention.hugging_face import BlockAttention
from services.trainer.batches.micro_batches import MicroBatch
from services.trainer.distributed.placement import computes_in_bf16, device_named, place_model
from services.trainer.model.base_model import Head, load_causal_lm, load_quantised
from services.trainer.model.head import TokenScores, WithGradient, score_tokens
from services.trainer.model.lora import adapter_files, with_adapter
from services.trainer.versions.files import Content, StoredTensor, TensorFile

VALUE_HEAD_FILE = "value_head.safetensors"


class Policy:
    """A frozen base with a trainable adapter in float32.

    With PPO it also has a value head. Both share the body, which learns from both losses. A commit stores the
    head beside the adapter, where vLLM does not load it, and its Adam moments with the adapter's.
    """

    model: Any
    """The module in training. It has Hugging Face's `get_output_embeddings`."""
    value_head: "ValueHead | None" = None

    def __init__(self, settings: TrainerSettings) -> None:
        self.device = device_named(settings.device)
        self.in_bf16 = computes_in_bf16(settings.precision, self.device)
        self.base_model = str(settings.model)
        torch.manual_seed(settings.seed)
        self._build(settings)
        if settings.objective == "ppo":
            width = self.model.get_output_embeddings().weight.shape[1]
            self.value_head = ValueHead(width).to(self.device)

    def _build(self, settings: TrainerSettings) -> None:
        disable_progress_bar()  # the run has its own progress bar, and a log should have none
        dtype = torch.bfloat16 if self.in_bf16 else torch.float32
        if settings.base_bits:
            base = load_quantised(
                Path(settings.model), bits=settings.base_bits, dtype=dtype, device=self.device
            )
        else:
            base = load_causal_lm(Path(settings.model), dtype=dtype)
        hugging_face.enable(base)
        if settings.gradient_checkpointing:
            base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            base.enable_input_require_grads()
        adapted = with_adapter(
            base, rank=settings.lora_rank, alpha=settings.lora_alpha, targets=settings.lora_targets
        )
        self.model = place_model(adapted, self.device, sharding=settings.sharding).train()
        self._body: Any = self.model.get_base_model().base_model
        if settings.compile:
            self._body.compile(dynamic=True)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that the optimizer updates: of the policy, then of the value head."""
        head = self.value_head.parameters() if self.value_head else ()
        return [*(p for p in self.model.parameters() if p.requires_grad), *head]

    def score(
        self,
        batch: MicroBatch,
        *,
        with_gradient: WithGradient = WithGradient(),  # noqa: B008 - frozen
        reference: bool = False,
    ) -> TokenScores:
        """Returns log-probability, entropy and, if requested, KL of each completion token. `reference` adds a
        forward pass of the base model, without gradient, for the scores against it."""
        reference_ND, reference_head = self._reference(batch) if reference else (None, None)
        return score_tokens(
            self._head(),
            self._hidden(batch),
            batch.targets_N,
            vocabulary=self.model.get_output_embeddings().weight.shape[0],
            temperature=batch.temperature,
            reference_ND=reference_ND,
            reference_head=reference_head,
            with_gradient=with_gradient,
        )

    def next_token_logprobs(self, batch: MicroBatch) -> torch.Tensor:
        """Returns the log-probabilities of all tokens in each completion token's place, [N, V]."""
        with torch.no_grad():
            return self._head()(self._hidden(batch)).log_softmax(-1)

    def _head(self) -> Head:
        return Head.of(self.model)

    def _hidden(self, batch: MicroBatch) -> torch.Tensor:
        return packed_hidden(self._body, batch)

    def _reference(self, batch: MicroBatch) -> tuple[torch.Tensor, Head]:
        """Returns the hidden states with the adapter off, and the head, which has no adapter."""
        with torch.no_grad(), self.model.disable_adapter():
            return self._hidden(batch), self._head()

    def values(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns the values of hidden states, [N]. Only PPO's policy has a value head."""
        assert self.value_head is not None  # noqa: S101 - see above
        return self.value_head(hidden_ND)

    def version_files(self) -> dict[str, Content]:
        """Returns the policy's files in a commit, by name."""
        files = self._model_files()
        if self.value_head:
            weights = {name: StoredTensor.of(tensor) for name, tensor in self.value_head.state_dict().items()}
            files[VALUE_HEAD_FILE] = TensorFile(weights)
        return files

    def load_version(self, folder: Path) -> None:
        """Loads the weights of a commit."""
        self._load_model(folder)
        if self.value_head:
            self.value_head.load_state_dict(load((folder / VALUE_HEAD_FILE).read_bytes()))

    def _model_files(self) -> dict[str, Content]:
        """Returns PEFT's files, which vLLM reads."""
        return dict(adapter_files(self.model, base_model=self.base_model))

    def _load_model(self, folder: Path) -> None:
        from peft import set_peft_model_state_dict

        weights = load((folder / "adapter_model.safetensors").read_bytes())
        set_peft_model_state_dict(self.model, weights)


def packed_hidden(body: Any, batch: MicroBatch) -> torch.Tensor:
    """Returns the last layer's hidden states that predict a completion token, [N, D]."""
    attention = BlockAttention(batch.blocks, compiled=False)
    hidden_1TD = body(
        input_ids=batch.input_ids_1T,
        position_ids=batch.position_ids_1T,
        use_cache=False,
        block_attention=attention,
    ).last_hidden_state
    attention.check(body)
    return hidden_1TD[0, batch.predictor_N]


class ValueHead(torch.nn.Module):  # type: ignore[misc]
    """The critic: one linear layer in float32 on the policy's hidden state before a token. It is initialised
    with zeros, because a value of 0 is better than a random one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns values, [N]."""
        return F.linear(hidden_ND.float(), self.weight[None], self.bias[None])[:, 0]
