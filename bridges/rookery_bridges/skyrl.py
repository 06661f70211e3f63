"""An environment for SkyRL's gym: one answer to one position.

    skyrl_gym.register(id="rookery", entry_point="rookery_bridges.skyrl:ChessEnv")

A row of the data set has `env_class` "rookery", and in `reward_spec` a `ground_truth`: a FEN, or a JSON
object with the fields of `Answer`.
"""

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from rookery_bridges.client import Answer, RewardClient


class ChessEnv(BaseTextEnv):
    """Ends after the first answer. `env_config` may have `reward_url` and `scheme`."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        config = dict(env_config or {})
        self._client = RewardClient(config.get("reward_url", ""), scheme=config.get("scheme", ""))
        self._ground_truth = (extras or {})["reward_spec"]["ground_truth"]
        self._legal: bool | None = None

    def step(self, action: str) -> BaseTextEnvStepOutput:
        [verdict] = self._client.score([Answer.to(self._ground_truth, action)])
        self._legal = verdict.legal
        metadata = {"outcome": verdict.outcome, "reward_version": verdict.reward_version}
        return BaseTextEnvStepOutput(observations=[], reward=verdict.reward, done=True, metadata=metadata)

    def get_metrics(self) -> dict[str, Any]:
        return {} if self._legal is None else {"legal": float(self._legal)}
