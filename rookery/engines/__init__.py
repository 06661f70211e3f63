"""The pool of Stockfish processes, and the queue of requests in front of it."""

from rookery.engines.engine import find_engine
from rookery.engines.fair_queue import RequestQueue
from rookery.engines.pool import EnginePool

__all__ = ["EnginePool", "RequestQueue", "find_engine"]
