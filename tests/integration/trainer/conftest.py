"""Random rook-tinies, as in the unit tests."""

from tests.unit.trainer.conftest import small_model, tiny_model

__all__ = ["small_model", "tiny_model"]
