"""One Stockfish for the whole session, and ways to start others."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rookery.config.reward import RewardSettings
from services.reward import LocalScorer


@pytest.fixture(scope="session")
def engine_settings(stockfish_path: str) -> RewardSettings:
    return RewardSettings(engine_path=Path(stockfish_path), engines=1, nodes=1000)


@pytest.fixture(scope="session")
def scorer(engine_settings: RewardSettings) -> Iterator[LocalScorer]:
    with closing(LocalScorer(engine_settings)) as scorer:
        yield scorer
