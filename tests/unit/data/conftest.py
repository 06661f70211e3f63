from collections.abc import Iterator
from pathlib import Path

import pytest

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from tests.conftest import ROOT

SAMPLE = ROOT / "samples" / "lichess.pgn.zst"


@pytest.fixture(scope="session")
def sample_path() -> Path:
    return SAMPLE


@pytest.fixture(scope="session")
def collection() -> Iterator[GameCollection]:
    """The games that come with the repository."""
    collection = GameCollection([SAMPLE])
    yield collection
    collection.close()


@pytest.fixture(scope="session")
def order(collection: GameCollection) -> PositionOrder:
    """Their held-out positions: few games, so that each is parsed once."""
    return PositionOrder(collection, shares=Shares(), split="heldout")
