"""Typed clients of the other services: reward over gRPC, inference over HTTP.

Every call has a timeout and a limited number of attempts. It raises `PeerFault` if the service fails, and
`InvalidInput` if the service refuses the request. Neither ever becomes a reward.
"""

from rookery.clients.inference import Generation, InferenceClient
from rookery.clients.reward import RewardClient
from rookery.trace import ScoreItem

__all__ = ["Generation", "InferenceClient", "RewardClient", "ScoreItem"]
