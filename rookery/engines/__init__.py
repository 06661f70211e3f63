"""The Stockfish processes of this process, and the queue before them."""

from rookery.engines.binary import find_engine
from rookery.engines.lane import Lane
from rookery.engines.pool import EnginePool

__all__ = ["EnginePool", "Lane", "find_engine"]
