"""The Stockfish processes of this process, and the queue before them."""

from rookery.engines.binary import find_engine
from rookery.engines.fair_queue import RequestQueue
from rookery.engines.pool import EnginePool

__all__ = ["EnginePool", "RequestQueue", "find_engine"]
