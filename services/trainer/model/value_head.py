"""The critic of PPO: the value of what stands before a token, read off the policy's own hidden state.

It lies in the commit as `value_head.safetensors`, beside the adapter and outside of what vLLM loads; its
moments are with the adapter's.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load

from rookery.errors import SetupError
from rookery.hub import model_folder
from services.trainer.gpt2.config import is_gpt2
from services.trainer.gpt2.merged import MergedPolicy
from services.trainer.gpt2.policy import Gpt2Policy
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.versions.tensor_file import Content, Stored, TensorFile

FILE = "value_head.safetensors"


class ValueHead(torch.nn.Module):  # type: ignore[misc]
    """One linear layer in float32. It begins at 0: no value is better than a random one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Values, [N]."""
        values_N: torch.Tensor = F.linear(hidden_ND.float(), self.weight[None], self.bias[None])[:, 0]
        return values_N


class ActorCritic(Policy):
    """A policy with a value head; they share the body, and the body learns from both."""

    def __init__(self, settings: TrainerSettings) -> None:
        super().__init__(settings)
        width = self.model.get_output_embeddings().weight.shape[1]
        self.value_head = ValueHead(width).to(self.device)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The adapter's, then the head's."""
        return [*super().parameters, *self.value_head.parameters()]

    def values(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Of the states that `hidden_ND` stand for, [N]."""
        values_N: torch.Tensor = self.value_head(hidden_ND)
        return values_N

    def version_files(self) -> dict[str, Content]:
        """The adapter's files, and the head's."""
        weights = {name: Stored.of(tensor) for name, tensor in self.value_head.state_dict().items()}
        return {**super().version_files(), FILE: TensorFile(weights)}

    def load_version(self, folder: Path) -> None:
        """Takes the weights of a committed adapter and its head."""
        super().load_version(folder)
        self.value_head.load_state_dict(load((folder / FILE).read_bytes()))


class MergedActorCritic(ActorCritic, MergedPolicy):
    """The same over a GPT-2 that vLLM serves merged."""


class Gpt2ActorCritic(ActorCritic, Gpt2Policy):
    """The same with every weight of a GPT-2 learning."""


def policy_for(settings: TrainerSettings) -> Policy:
    """What the settings ask for: a critic for PPO, every weight where there is no adapter.

    Raises:
        SetupError: there is no such model, or it is no GPT-2 and has no adapter.
    """
    folder = model_folder(str(settings.model))
    plain: type[Policy] = Policy
    critic: type[Policy] = ActorCritic
    if not settings.lora_rank and not is_gpt2(folder):
        raise SetupError(f"--lora-rank 0 trains every weight of a GPT-2, and {settings.model} is none")
    if not settings.lora_rank:
        plain, critic = Gpt2Policy, Gpt2ActorCritic
    elif is_gpt2(folder):
        plain, critic = MergedPolicy, MergedActorCritic
    kind = critic if settings.objective == "ppo" else plain
    policy = kind(settings.model_copy(update={"model": folder}))
    policy.base_model = str(settings.model)  # servers know the base by the name it was given
    return policy
