"""What RookWorld answers without skill can earn, and that the labels of the data service earn all of it.

The positions are generated, from quiet openings to decided endgames. Run with `-s` to see the table.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import fmean

import chess
import pytest

from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.rookworld import RookworldMix, labelled_line
from rookery.config.reward import RewardSettings
from rookery.engines import EnginePool
from rookery.rookworld import PolicyAnswer, PolicyLine, policy_answer, policy_prompt
from rookery.trace import ScoreItem, Verdict
from services.reward import LocalScorer

pytestmark = pytest.mark.stockfish

NODES = 2000


@pytest.fixture(scope="module")
def labels(stockfish_path: str) -> list[PolicyLine]:
    """The lines that the data service would write, from searches like the reward's own."""

    async def label() -> list[PolicyLine]:
        settings = RewardSettings()
        mix = RookworldMix(state=0.0)
        positions = map(PositionGenerator(seed=21, least_moves=6).position, range(30))
        async with EnginePool(
            Path(stockfish_path), engines=2, hash_mb=settings.hash_mb, queue=1000, deadline_s=60.0
        ) as pool:
            made = [await labelled_line(one, pool, nodes=NODES, mix=mix) for one in positions]
        return [line for line in made if isinstance(line, PolicyLine)]

    return asyncio.run(label())


@pytest.fixture(scope="module")
def grader(stockfish_path: str) -> Iterator[LocalScorer]:
    settings = RewardSettings(engine_path=Path(stockfish_path), engines=2, nodes=NODES)
    with closing(LocalScorer(settings)) as scorer:
        yield scorer


def rewards(grader: LocalScorer, labels: list[PolicyLine], write: Callable[[PolicyLine], str]) -> list[float]:
    items = [ScoreItem(line.fen, write(line), task="P") for line in labels]
    verdicts = grader.score_batch(items)
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    return [verdict.reward for verdict in verdicts if isinstance(verdict, Verdict)]


def with_fields(line: PolicyLine, moves: list[str], evals: list[float], best: str) -> str:
    return policy_answer(PolicyAnswer(tuple(moves), tuple(evals), best))


def at_random(line: PolicyLine) -> list[str]:
    legal = sorted(move.uci() for move in chess.Board(line.fen).legal_moves)
    return random.Random(line.fen).sample(legal, 5)


def test_the_data_service_s_labels_are_perfect(grader: LocalScorer, labels: list[PolicyLine]) -> None:
    assert set(rewards(grader, labels, lambda line: policy_answer(line.answer))) == {1.0}


PROBES: dict[str, tuple[Callable[[PolicyLine], str], float, float]] = {
    # what is written; the most that any position pays; the most that they pay in the mean
    "the prompt": (lambda line: policy_prompt(line.fen), -0.3, -0.3),
    "the prompt and the answer": (
        lambda line: policy_prompt(line.fen) + policy_answer(line.answer),
        -0.3,
        -0.3,
    ),
    "a constant": (lambda _: "M: e2e4 d2d4 g1f3 c2c4 b1c3 E: 0.3 0.3 0.3 0.3 0.3 B: e2e4", 1.0, 0.3),
    "one safe move": (
        lambda line: with_fields(line, [line.answer.best], [max(line.answer.evals)], line.answer.best),
        0.4,
        0.4,
    ),
    "one move five times": (
        lambda line: with_fields(
            line, [line.answer.best] * 5, [max(line.answer.evals)] * 5, line.answer.best
        ),
        0.4,
        0.4,
    ),
    "random moves, all equal": (
        lambda line: with_fields(line, at_random(line), [0.0] * 5, at_random(line)[0]),
        1.0,
        0.5,
    ),
    "the right moves, all equal": (
        lambda line: with_fields(line, list(line.answer.moves), [0.0] * 5, line.answer.best),
        1.0,
        0.7,
    ),
    "the worst of five as best": (
        lambda line: with_fields(
            line,
            list(line.answer.moves),
            list(line.answer.evals),
            line.answer.moves[line.answer.evals.index(min(line.answer.evals))],
        ),
        1.0,
        0.8,
    ),
}


@pytest.mark.parametrize("probe", PROBES)
def test_probes_earn_at_most(probe: str, grader: LocalScorer, labels: list[PolicyLine]) -> None:
    write, most, most_in_the_mean = PROBES[probe]
    earned = rewards(grader, labels, write)
    print(f"{probe:28}  max {max(earned):+.2f}  mean {fmean(earned):+.3f}")
    assert max(earned) <= most
    assert fmean(earned) <= most_in_the_mean
