"""The chess environment of verifiers, under the name by which its commands find it: `eval rookery-chess`."""

from rookery_bridges.verifiers import ChessEnv, ChessTaskset

__all__ = ["ChessEnv", "ChessTaskset"]
