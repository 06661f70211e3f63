"""A random rook-tiny."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from services.trainer.tiny import build_tiny

    return build_tiny(tmp_path_factory.mktemp("tiny"), seed=3)
