from collections.abc import Iterator
from pathlib import Path

import pytest

from services.data.pgn.collection import Archive
from services.data.positions.numbered import Order
from services.data.positions.recipe import Shares
from tests.conftest import ROOT

SAMPLE = ROOT / "samples" / "lichess.pgn.zst"


@pytest.fixture(scope="session")
def sample_path() -> Path:
    return SAMPLE


@pytest.fixture(scope="session")
def archive() -> Iterator[Archive]:
    """The games that come with the repository."""
    archive = Archive([SAMPLE])
    yield archive
    archive.close()


@pytest.fixture(scope="session")
def order(archive: Archive) -> Order:
    """Their held-out positions: few games, so that each is parsed once."""
    return Order(archive, shares=Shares(), split="heldout")
