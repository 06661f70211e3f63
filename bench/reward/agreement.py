"""How far the reward of few nodes agrees with tables of Stockfish's that others computed with more time.

The tables are the action values of Ruoss et al., "Grandmaster-Level Chess Without Search" (2024): the win
probability of every legal move after 50 ms of Stockfish 16, by the same formula as the reward's.
Every legal move is scored as an answer. Figures are means over positions; a 95% interval is 1.96 standard
errors of that mean.
"""

import csv
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
from rich.table import Table

from bench.usage import Result, Usage, measure
from rookery.config.reward import RewardSettings
from rookery.trace import ScoreItem, Verdict
from services.reward import LocalScorer

LEAST_VALUES = 5
"""Distinct ones among the moves of a position: fewer cannot be ranked."""

GROUP = 8
"""Completions of a prompt in GRPO; the so many best moves of a position are what a good policy would play."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A position and what its legal moves, in UCI, are worth: win probabilities of the side to move."""

    fen: str
    wins: dict[str, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """One position: our rewards (minus the regret) of all legal moves beside the reference's.

    `noise` and `spread` are standard deviations over the moves: of the difference of the two rewards, and of
    ours, by which GRPO divides; `correlation` is Pearson's of the two. `best_*` are the same of the `GROUP`
    best moves, None where the reference calls them all alike.
    """

    moves: int
    rank_correlation: float
    regret_error: float
    choice_regret: float
    noise: float
    spread: float
    correlation: float
    best_noise: float | None
    best_spread: float | None
    best_correlation: float | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """All positions at one number of nodes, and the processor time of a search in milliseconds."""

    nodes: int
    search_ms: float
    positions: tuple[Compared, ...]

    def mean(self, name: str) -> tuple[float, float]:
        """The mean of a figure of the positions, and half of its 95% interval."""
        values = [value for one in self.positions if (value := getattr(one, name)) is not None]
        return statistics.fmean(values), 1.96 * statistics.stdev(values) / len(values) ** 0.5


def references(path: Path) -> Iterator[Reference]:
    """The positions of a table of action values whose moves can be ranked."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            moves = json.loads(row["Move"].replace("'", '"'))
            wins = dict(zip(moves, json.loads(row["Win Probability"]), strict=True))
            if len(set(wins.values())) >= LEAST_VALUES:
                yield Reference(row["FEN"], wins)


def run_agreement(path: Path, *, positions: int, nodes: int, engine: Path) -> Agreement:
    """Scores every legal move of the first `positions` positions of the table at `path`."""
    wanted = list(islice(references(path), positions))
    settings = RewardSettings(engine_path=engine, nodes=nodes)
    compared, usage = scored(settings, lambda scorer: [compare(scorer, one) for one in wanted])
    searches = sum(one.moves for one in compared)  # the best move has none of its own, the position has one
    return Agreement(nodes, 1000 * usage.engine_cpu_s / searches, tuple(compared))


def scored(settings: RewardSettings, work: Callable[[LocalScorer], Result]) -> tuple[Result, Usage]:
    """What `work` makes of a scorer with empty caches, and the processor time that its engines took."""
    scorer = LocalScorer(settings)
    engines = [child.pid for child in psutil.Process().children()]
    try:
        return measure(lambda: work(scorer), engines=engines)
    finally:
        scorer.close()


def compare(scorer: LocalScorer, reference: Reference) -> Compared:
    """The rewards of all moves of one position beside the reference's."""
    verdicts = verdicts_of(scorer, reference.fen, list(reference.wins))
    best = max(reference.wins.values())
    pairs = [
        (verdict.reward, win - best) for verdict, win in zip(verdicts, reference.wins.values(), strict=True)
    ]
    choice = verdicts[0].best
    group = sorted(pairs, key=lambda pair: pair[1], reverse=True)[:GROUP]
    alike = len({theirs for _, theirs in group}) == 1
    return Compared(
        len(pairs),
        spearman([verdict.win_after or 0.0 for verdict in verdicts], [theirs for _, theirs in pairs]),
        statistics.fmean(abs(ours - theirs) for ours, theirs in pairs),
        best - reference.wins[choice.uci] if choice else 0.0,
        *_within(pairs),
        *((None, None, None) if alike else _within(group)),
    )


def _within(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Noise, spread and correlation of a group: (our reward, the reference's) of each move."""
    ours, theirs = zip(*pairs, strict=True)
    errors = [a - b for a, b in pairs]
    return statistics.pstdev(errors), statistics.pstdev(ours), pearson(ours, theirs)


def verdicts_of(scorer: LocalScorer, fen: str, moves: Sequence[str]) -> list[Verdict]:
    """The verdicts of `moves`, from one request."""
    results = scorer.score_batch([ScoreItem(fen, f"\\boxed{{{move}}}", scheme="delta") for move in moves])
    verdicts = [result for result in results if isinstance(result, Verdict)]
    if len(verdicts) < len(moves):
        raise RuntimeError(f"{fen}: no verdict in {results!r}")
    return verdicts


def ranks(values: Sequence[float]) -> list[float]:
    """From 0; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: list[float] = (np.cumsum(counts) - (counts + 1) / 2)[inverse].tolist()
    return means


def pearson(one: Sequence[float], other: Sequence[float]) -> float:
    """Correlation in [-1, 1]; 0 where one side is all alike."""
    if len(set(one)) == 1 or len(set(other)) == 1:
        return 0.0
    return statistics.correlation(one, other)


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation: Pearson's of the ranks."""
    return pearson(ranks(one), ranks(other))


_AGREEMENT = (
    ("rank correlation", "rank_correlation"),
    ("error of the regret", "regret_error"),
    ("regret of its choice", "choice_regret"),
)
_NOISE = (
    ("noise", "noise"),
    ("spread", "spread"),
    ("correlation", "correlation"),
    (f"{GROUP} best: noise", "best_noise"),
    ("spread", "best_spread"),
    ("correlation", "best_correlation"),
)


def agreement_tables(rows: Sequence[Agreement]) -> Iterator[Table]:
    """How near the rewards are; what their noise is within a group. A row for each number of nodes."""
    first = rows[0].positions
    size = f"{len(first):,} positions, {sum(one.moves for one in first):,} moves"
    yield _table(rows, _AGREEMENT, f"Agreement with the reference: {size}")
    yield _table(rows, _NOISE, f"Noise of the reward within a position's moves, all and the {GROUP} best")


def _table(rows: Sequence[Agreement], columns: Sequence[tuple[str, str]], title: str) -> Table:
    table = Table("nodes", "ms a search", *(heading for heading, _ in columns), title=title)
    for row in rows:
        figures = [f"{mean:.3f} ±{half:.3f}" for mean, half in (row.mean(name) for _, name in columns)]
        table.add_row(f"{row.nodes:,}", f"{row.search_ms:.2f}", *figures)
    return table
