"""The reward function of verl.

    reward.custom_reward_function.path=pkg://rookery_bridges.verl
    reward.custom_reward_function.name=compute_score

`ground_truth` of the data set is a FEN, or a JSON object with the fields of `Answer`.
"""

from collections.abc import Mapping
from typing import Any

from rookery_bridges.client import Answer, RewardClient


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str | Mapping[str, Any],
    extra_info: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """The reward (`score`) of a completion, and `legal`, which verl logs. The service is that of
    `ROOKERY_REWARD_URL`. Raises `RewardFault` if there is no reward."""
    [verdict] = RewardClient().score([Answer.to(ground_truth, solution_str)])
    return {"score": verdict.reward, "legal": float(verdict.legal)}
