"""Our move values against tables of Stockfish's that others computed with far more time.

The tables are those of Ruoss et al., "Grandmaster-Level Chess Without Search" (2024): the win probability
of every legal move after 50 ms of Stockfish 16. Run with `-s` to see the correlations.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from statistics import fmean, median

import pytest

from rookery.trace import Verdict
from services.reward.local import LocalScorer
from services.reward.scorer import Item

pytestmark = [pytest.mark.stockfish, pytest.mark.shared_data]

POSITIONS = 40


def tables(shared_data: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Every twentieth position with at least five moves that are not all alike."""
    path = shared_data / "sf_evals" / "searchless_actionvalues" / "deepmind62k_evals_1k.csv"
    with path.open(newline="") as file:
        for row in islice(csv.DictReader(file), 0, None, 20):
            moves = json.loads(row["Move"].replace("'", '"'))
            values = dict(zip(moves, json.loads(row["Win Probability"]), strict=True))
            if len(set(values.values())) >= 5:
                yield row["FEN"], values


def ranks(values: Sequence[float]) -> list[float]:
    """From 0; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    place = 0
    for _, group in groupby(order, key=values.__getitem__):
        equal = list(group)
        for index in equal:
            result[index] = place + (len(equal) - 1) / 2
        place += len(equal)
    return result


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation: Pearson's of the ranks. 0 where one side is all alike."""
    x, y = ranks(one), ranks(other)
    mean = (len(x) - 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(x, y, strict=True))
    spread = sum((a - mean) ** 2 for a in x) * sum((b - mean) ** 2 for b in y)
    return covariance / spread**0.5 if spread else 0.0


def test_spearman() -> None:
    assert spearman([1, 2, 3], [10, 20, 90]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4], [1, 1, 1, 1]) == 0.0
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832981)  # scipy.stats.spearmanr


def test_our_ranking_of_moves_is_theirs(shared_data: Path, scorer: LocalScorer) -> None:
    correlations, regrets = [], []
    for fen, theirs in islice(tables(shared_data), POSITIONS):
        verdicts = scorer.score_batch([Item(fen, rf"\boxed{{{uci}}}") for uci in theirs])
        assert all(isinstance(verdict, Verdict) for verdict in verdicts)
        ours = [verdict.win_after for verdict in verdicts]
        correlations.append(spearman(ours, list(theirs.values())))
        regrets.append(max(theirs.values()) - theirs[verdicts[0].best.uci])
    low, high = min(correlations), max(correlations)
    print(f"\nSpearman per position at 1,000 nodes: mean {fmean(correlations):.3f}, ", end="")
    print(f"median {median(correlations):.3f}, from {low:.3f} to {high:.3f}; ", end="")
    print(f"our best move costs {fmean(regrets):.3f} by their table")
    assert len(correlations) == POSITIONS
    assert fmean(correlations) > 0.7
    assert fmean(regrets) < 0.05
