"""Random rook-tinies, as in the unit tests. Everything here needs torch."""

from tests.unit.trainer.conftest import pytest_pycollect_makemodule, small_model, tiny_model

__all__ = ["pytest_pycollect_makemodule", "small_model", "tiny_model"]
