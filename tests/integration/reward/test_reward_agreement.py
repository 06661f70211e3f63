"""Our move values against tables of Stockfish's that others computed with far more time.

`python -m bench.reward --sections agreement` prints the figures for any number of positions and nodes.
"""

from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest

from bench.reward.agreement import Reference, compare, pearson, references, spearman
from services.reward import LocalScorer

POSITIONS = 40


def test_spearman() -> None:
    assert spearman([1, 2, 3], [10, 20, 90]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4], [1, 1, 1, 1]) == 0.0
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832981)  # scipy.stats.spearmanr


def test_pearson() -> None:
    assert pearson([1, 2, 3], [-1, -2, -3]) == pytest.approx(-1.0)
    assert pearson([1, 2, 3], [4, 4, 4]) == 0.0


@pytest.mark.stockfish
def test_a_reference_that_says_the_same_has_no_noise(scorer: LocalScorer) -> None:
    fen = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
    wins = {"d1d8": 1.0, "d1d7": 0.9, "g1f1": 0.9}
    compared = compare(scorer, Reference(fen, wins))
    assert compared.moves == 3
    assert compared.choice_regret == 0.0
    assert compared.rank_correlation > 0.8
    assert compared.noise == compared.best_noise < compared.spread


@pytest.mark.stockfish
@pytest.mark.shared_data
def test_our_ranking_of_moves_is_theirs(shared_data: Path, scorer: LocalScorer) -> None:
    path = shared_data / "sf_evals" / "searchless_actionvalues" / "deepmind62k_evals_1k.csv"
    compared = [compare(scorer, one) for one in islice(references(path), POSITIONS)]
    assert len(compared) == POSITIONS
    assert fmean(one.rank_correlation for one in compared) > 0.65
    assert fmean(one.choice_regret for one in compared) < 0.05
    assert fmean(one.regret_error for one in compared) < 0.08
