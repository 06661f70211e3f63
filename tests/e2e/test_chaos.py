"""The short form of `make chaos`: some faults of each kind on one run of real processes."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.redis, pytest.mark.torch, pytest.mark.timeout(600)]

pytest.importorskip("torch")

from tests.chaos import games  # noqa: E402
from tests.chaos.__main__ import run  # noqa: E402

FAULTS = [
    "kill at commit.renamed",
    "kill at trainer.acknowledged",
    "kill at archive.written",
    "disk full",
    "trainer paused, two more",
    "network: lose-reply",
    "redis killed, file cut",
]
"""The other windows of the commit: tests/integration/trainer/test_training_run.py."""

FAULTS_OF_GAMES = ["games: kill at rollouts.stored", "games: opponents killed"]
"""The other failpoints of turns: tests/integration/rollouts/test_process.py."""


def test_a_disturbed_run_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Each failpoint is passed, the accounts hold, and the adapter has the bytes of a run without faults."""
    rows = list(run(tmp_path, seed=20, names=FAULTS, lasts_s=1.0))
    assert sorted(row.fault for row in rows) == sorted(FAULTS)
    assert [(row.lost, row.doubled) for row in rows] == [(0, 0)] * len(FAULTS)
    assert all(row.injections for row in rows)


@pytest.mark.stockfish
def test_games_that_are_disturbed_lose_no_turn_and_double_none(tmp_path: Path) -> None:
    """They equal those that nothing disturbs, and nothing of them is left in Redis."""
    rows = list(games.run(tmp_path, FAULTS_OF_GAMES, seed=20, injections=2))
    assert [(row.fault, row.lost, row.doubled) for row in rows] == [(name, 0, 0) for name in FAULTS_OF_GAMES]
    assert all(row.injections >= 2 for row in rows)
