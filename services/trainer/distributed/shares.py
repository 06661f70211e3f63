"""Decides which process computes which rows. No torch.

Every process knows the whole batch and computes the same assignment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.trainer.batches.batch import Row, micro_batches


@dataclass(frozen=True, slots=True)
class Turn:
    """One pass through the model. Its loss is multiplied by `weight`: 1, or 0 for an idle pass."""

    rows: list[Row]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Deal:
    """The turns of one process, and the micro-batches of all, in the order of ranks, without idle passes."""

    turns: list[Turn]
    cuts: list[list[Row]]


def deal(rows: Sequence[Row], *, tokens: int, rank: int, size: int, even: bool) -> Deal:
    """Deals `rows` to `size` processes and splits each share into micro-batches of at most `tokens`.

    `even` gives all processes the same number of turns, because sharded weights can be gathered only by all
    together. Idle passes use the shortest row.
    """
    cuts = [micro_batches(own, tokens=tokens) for own in shares(rows, size)]
    turns = [Turn(cut) for cut in cuts[rank]]
    if even and rows:
        idle = Turn([min(rows, key=lambda row: row.length)], 0.0)
        turns += [idle] * (max(map(len, cuts)) - len(turns))
    return Deal(turns, [cut for own in cuts for cut in own])


def shares(rows: Sequence[Row], size: int) -> list[list[Row]]:
    """Splits `rows` into `size` parts with nearly equal tokens, each in the given order. Some may be empty.

    The longest rows come first, each goes to the part with the fewest tokens. The largest part is at most 4/3
    of the optimum (Graham 1969, LPT).
    """
    loads = [0] * size
    owner = [0] * len(rows)
    for index in sorted(range(len(rows)), key=lambda i: rows[i].length, reverse=True):
        least = loads.index(min(loads))
        owner[index] = least
        loads[least] += rows[index].length
    return [[row for row, own in zip(rows, owner, strict=True) if own == part] for part in range(size)]
