"""Random rook-tinies. Everything here needs torch."""

from pathlib import Path

import pytest

from tests.conftest import require


def pytest_pycollect_makemodule() -> None:
    """Skips the folder before its modules import torch."""
    require("torch")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from services.trainer.tiny import build_tiny

    return build_tiny(tmp_path_factory.mktemp("tiny"), seed=3)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with a single layer."""
    from services.trainer.tiny import build_tiny

    out = tmp_path_factory.mktemp("small")
    return build_tiny(out, seed=1, hidden_size=64, layers=1, intermediate_size=128)
