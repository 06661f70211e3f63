"""A random rook-tiny, as in the unit tests."""

from tests.unit.trainer.conftest import tiny_model

__all__ = ["tiny_model"]
