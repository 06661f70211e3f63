"""`python -m bench.reward.noise`: the engine's noise in groups of answers, and what to do about it.

The reference is the same engine with many more nodes, so the noise is the part of a reward that more nodes
would take away. A group has eight answers to a position of a real game: legal moves drawn at random, as from
a random policy, or drawn by softmax(reference / 0.05), as from a good one. Nodes and floors
are compared by the cosine of the advantages of all groups with the reference's rewards less their group's
mean. If all answers have gradients of about the same length, this is the share of the step's length that goes
where the mean true reward rises: an answer at cosine c is worth as much as (c / c')^2 answers at c'.
Intervals are 95%, by resampling positions; those of the cosines are of the difference to no floor.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import chess
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.reward.agreement import scored, verdicts_of
from bench.reward.workload import positions
from rookery.advantages import group_advantages
from rookery.config.reward import RewardSettings
from services.reward import LocalScorer

GROUP = 8
TEMPERATURE = 0.05
FLOORS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
RESAMPLES = 1000
APART = 0.01
"""Pairs of moves count as different if the reference's rewards differ by more than this."""


@dataclass(frozen=True, slots=True)
class Group:
    """A position and the moves that were drawn for it, with the reference's rewards."""

    fen: str
    moves: tuple[str, ...]
    truth: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """The rewards of each group's moves, and the processor time of the engines in ms per answer."""

    name: str
    rewards: list[list[float]]
    ms: float


def drawn_groups(fens: Sequence[str], scorer: LocalScorer) -> dict[str, list[Group]]:
    """Two groups for each position, by kind. The reference scores all of its legal moves."""
    made: dict[str, list[Group]] = {"random": [], "good": []}
    for fen in fens:
        moves = [move.uci() for move in chess.Board(fen).legal_moves]
        truth = {
            move: verdict.reward for move, verdict in zip(moves, verdicts_of(scorer, fen, moves), strict=True)
        }
        rng = random.Random(fen)
        weights = np.exp(np.array(list(truth.values())) / TEMPERATURE)
        for kind, by in (("random", None), ("good", list(weights))):
            own = tuple(rng.choices(moves, weights=by, k=GROUP))
            made[kind].append(Group(fen, own, tuple(truth[move] for move in own)))
    return made


def measured(name: str, groups: Sequence[Group], settings: RewardSettings) -> Measured:
    """Scores each group in one request, with an empty cache."""

    def work(scorer: LocalScorer) -> list[list[float]]:
        return [[v.reward for v in verdicts_of(scorer, group.fen, group.moves)] for group in groups]

    found, usage = scored(settings, work)
    return Measured(name, found, 1000 * usage.engine_cpu_s / (GROUP * len(groups)))


def centred(values: Sequence[Sequence[float]]) -> Any:
    """Each value less the mean of its group."""
    table = np.array(values)
    return table - table.mean(axis=1, keepdims=True)


def cosines(advantages: Any, truth: Any, *, seed: int) -> Any:
    """The cosine over all groups, then those of resampled groups: the same ones for the same seed."""
    parts = np.stack([(advantages * truth).sum(1), (advantages**2).sum(1), (truth**2).sum(1)])
    chosen = np.random.default_rng(seed).integers(0, len(truth), size=(RESAMPLES, len(truth)))
    product, own, other = np.concatenate([parts.sum(1)[:, None], parts[:, chosen].sum(2)], axis=1)
    return product / np.sqrt(own * other)


def advantages(rewards: Sequence[Sequence[float]], floor: float | None) -> Any:
    """GRPO's, with this floor under the standard deviation; without division if it is None."""
    return np.array(
        [group_advantages(own, normalise=floor is not None, sigma_floor=floor or 0.0) for own in rewards]
    )


def ordered(groups: Sequence[Group], rewards: Sequence[Sequence[float]], close: Sequence[int]) -> float:
    """The share of the pairs of moves in `close` groups that have the reference's order; equal ones half."""
    right = [
        0.5 + 0.5 * float(np.sign((own[i] - own[j]) * (group.truth[i] - group.truth[j])))
        for group, own in ((groups[n], rewards[n]) for n in close)
        for i, j in combinations(range(GROUP), 2)
        if abs(group.truth[i] - group.truth[j]) > APART
    ]
    return float(np.mean(right)) if right else float("nan")


def noise_table(kind: str, groups: Sequence[Group], rows: Sequence[Measured]) -> Table:
    """The noise beside the standard deviation of the groups."""
    table = Table(
        "", "median sigma", "noise", "median noise", "sigma = 0", "0 < sigma < noise", "ms/answer",
        title=f"{kind} policy: {len(groups)} groups of {GROUP} answers",
    )  # fmt: skip
    truth = centred([group.truth for group in groups])
    for row in rows:
        own = centred(row.rewards)
        sigma, noise = own.std(axis=1), (own - truth).std(axis=1)
        typical = float(np.sqrt((noise**2).mean()))
        table.add_row(
            row.name, f"{np.median(sigma):.3f}", f"{typical:.3f}", f"{np.median(noise):.3f}",
            f"{(sigma == 0).mean():.0%}", f"{((sigma > 0) & (sigma < typical)).mean():.0%}", f"{row.ms:.2f}",
        )  # fmt: skip
    return table


def cosine_table(kind: str, groups: Sequence[Group], rows: Sequence[Measured], *, seed: int) -> Table:
    """The cosine for each floor, and how much more it is than without one. The last row does not divide by
    the standard deviation."""
    table = Table("--sigma-floor", *(row.name for row in rows), title=f"{kind} policy: cosine")
    truth = centred([group.truth for group in groups])
    without = [cosines(advantages(row.rewards, 0.0), truth, seed=seed) for row in rows]
    for floor in (*FLOORS, None):
        cells = []
        for row, base in zip(rows, without, strict=True):
            values = cosines(advantages(row.rewards, floor), truth, seed=seed)
            low, high = np.quantile((values - base)[1:], (0.025, 0.975))
            cells.append(f"{values[0]:.3f}" + (f" [{low:+.3f}, {high:+.3f}]" if floor != 0.0 else ""))
        table.add_row("no division" if floor is None else f"{floor:g}", *cells)
    return table


def close_table(
    kind: str, groups: Sequence[Group], plain: Measured, rows: Sequence[Measured], *, regret: float
) -> Table:
    """The groups that are close with the fewest nodes, and how well the others order their moves."""
    spread = [max(own) - min(own) for own in plain.rewards]
    close = [n for n, group in enumerate(groups) if len(set(group.moves)) > 1 and spread[n] < regret]
    table = Table(
        "", "pairs in the reference's order", "pairs tied", "ms/answer",
        title=f"{kind} policy: {len(close)} of {len(groups)} groups differ by less than {regret:g}",
    )  # fmt: skip
    for row in (plain, *rows):
        pairs = [
            row.rewards[n][i] == row.rewards[n][j]
            for n in close
            for i, j in combinations(range(GROUP), 2)
            if groups[n].moves[i] != groups[n].moves[j]
        ]
        tied = f"{np.mean(pairs):.0%}" if pairs else "-"
        table.add_row(row.name, f"{ordered(groups, row.rewards, close):.3f}", tied, f"{row.ms:.2f}")
    return table


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.reward.noise", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--positions", type=int, default=200, help="positions of real games")
    add("--nodes", type=int, nargs="+", default=[1000, 10_000], help="nodes of a search")
    add("--reference-nodes", type=int, default=100_000, help="nodes of a search of the reference")
    add("--close-regret", type=float, default=0.05, help="groups whose regrets differ by less are close")
    add("--engines", type=int, default=RewardSettings().engines, help="Stockfish processes")
    add("--source", type=Path, default=Path("samples/lichess.pgn.zst"), help="games")
    add("--seed", type=int, default=0, help="of the resampling")
    options = parser.parse_args()
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    fens = positions(options.source, options.positions)
    reference = LocalScorer(RewardSettings(nodes=options.reference_nodes, engines=options.engines))
    with console.status("reference"):
        by_kind = drawn_groups(fens, reference)
    reference.close()
    for kind, groups in by_kind.items():
        with console.status(kind):
            plain = [
                measured(f"{nodes:,} nodes", groups, RewardSettings(nodes=nodes, engines=options.engines))
                for nodes in options.nodes
            ]
        console.print(noise_table(kind, groups, plain))
        console.print(cosine_table(kind, groups, plain, seed=options.seed))
        first = plain[options.nodes.index(min(options.nodes))]
        others = [row for row in plain if row is not first]
        console.print(close_table(kind, groups, first, others, regret=options.close_regret))


if __name__ == "__main__":
    main()
