"""Typed clients of the other services: reward over gRPC, inference over HTTP.

Every call has a timeout and a bounded number of tries. A peer's fault surfaces as `PeerFault`, a
refusal of our input as `InvalidInput`; nothing here turns either into a reward.
"""

from rookery.clients.inference import Generation, InferenceClient
from rookery.clients.reward import RewardClient
from rookery.clients.score_items import ScoreItem

__all__ = ["Generation", "InferenceClient", "RewardClient", "ScoreItem"]
