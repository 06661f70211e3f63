"""Rookery's chess rewards in other trainers, over HTTP.

    from rookery_bridges import Answer, RewardClient
    [verdict] = RewardClient("http://localhost:8080").score([Answer(fen, r"\\boxed{e4}")])

`rookery_bridges.trl`, `.verl`, `.verifiers` and so on are for the trainer of that name.
"""

from rookery_bridges.client import Answer, EpisodeState, RewardClient, RewardFault, Verdict

__all__ = ["Answer", "EpisodeState", "RewardClient", "RewardFault", "Verdict"]
