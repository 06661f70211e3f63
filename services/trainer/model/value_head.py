"""The critic of PPO: the value of the tokens before a token, computed from the policy's own hidden state.

A commit stores it as `value_head.safetensors`, beside the adapter; vLLM does not load it. Its Adam moments
are stored with the adapter's.
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
    """One linear layer in float32. It starts at 0, because a value of 0 is better than a random one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns values, [N]."""
        values_N: torch.Tensor = F.linear(hidden_ND.float(), self.weight[None], self.bias[None])[:, 0]
        return values_N


class ActorCritic(Policy):
    """A policy with a value head. Both share the body, which learns from both losses."""

    def __init__(self, settings: TrainerSettings) -> None:
        super().__init__(settings)
        width = self.model.get_output_embeddings().weight.shape[1]
        self.value_head = ValueHead(width).to(self.device)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the policy, then of the value head."""
        return [*super().parameters, *self.value_head.parameters()]

    def values(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns the values of hidden states, [N]."""
        values_N: torch.Tensor = self.value_head(hidden_ND)
        return values_N

    def version_files(self) -> dict[str, Content]:
        """Returns the policy's files and the value head's."""
        weights = {name: Stored.of(tensor) for name, tensor in self.value_head.state_dict().items()}
        return {**super().version_files(), FILE: TensorFile(weights)}

    def load_version(self, folder: Path) -> None:
        """Loads the weights of a committed policy and its value head."""
        super().load_version(folder)
        self.value_head.load_state_dict(load((folder / FILE).read_bytes()))


class MergedActorCritic(ActorCritic, MergedPolicy):
    """An `ActorCritic` over a GPT-2 that vLLM serves with the adapter merged."""


class Gpt2ActorCritic(ActorCritic, Gpt2Policy):
    """An `ActorCritic` that trains every weight of a GPT-2."""


def policy_for(settings: TrainerSettings) -> Policy:
    """Builds the policy that the settings describe: with a critic for PPO, without an adapter for rank 0.

    Raises:
        SetupError: there is no such model, or rank 0 was chosen for a model that is not a GPT-2.
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
