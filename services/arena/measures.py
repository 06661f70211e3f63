"""Computes the metrics of a report from judged answers.

A policy gives one greedy answer and several sampled ones to each position. Samples are at temperature 1
without truncation of the distribution, as in training. A metric is over the sampled answers unless its name
says greedy.

* legal_rate          share of sampled answers whose move is legal
* legal_rate_greedy   the same for the greedy answer
* reward              mean reward, in the units of the reward version, including illegal answers
* regret_legal        regret summed over legal answers / number of legal answers, in win probability
* box_rate            share of answers that end in a closed box with the notation of a move, legal or not:
                      all outcomes but no_box, truncated, empty_box, too_long, unparsable

`regret_legal` compares different sets of answers: a move that was illegal before and is legal now counts for
one policy only, and these are the hard positions. `regret_both_legal` removes this effect: only positions
where both policies have a legal sample count, each with the mean over its legal samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rookery.trace import Outcome, Phase, Position, Prompt, Trace
from services.arena.stats import Comparison, Ratio, compare

READABLE = frozenset({Outcome.LEGAL, Outcome.ILLEGAL, Outcome.AMBIGUOUS, Outcome.NULL_MOVE})
"""The outcomes of answers with a closed box that has the notation of a move."""

METRICS = ("legal_rate", "legal_rate_greedy", "reward", "regret_legal", "box_rate")
FURTHER = ("regret_both_legal", "regret_legal_greedy", "reward_greedy", "best_move_rate")

ALL = "all"
COLOURS = ("white", "black")


@dataclass(frozen=True, slots=True)
class Answers:
    """The judged answers of one policy to one position."""

    position: Position
    prompt: Prompt
    greedy: Trace
    samples: tuple[Trace, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """The metrics over all positions or those of one phase or colour, and the number of these positions."""

    positions: int
    comparisons: Mapping[str, Comparison]


def measure(before: Sequence[Answers], after: Sequence[Answers], *, seed: int) -> dict[str, Part]:
    """Every metric with its interval, for each part: `all`, the phases, `white` and `black` to move.

    Raises:
        ValueError: `before` and `after` do not answer the same positions in the same order.
    """
    positions = [answers.position for answers in before]
    if positions != [answers.position for answers in after]:
        raise ValueError("before and after answer different positions")
    pairs = {name: (ratio(before), ratio(after)) for name, ratio in _RATIOS.items()}
    pairs["regret_both_legal"] = _both_legal(before, after)
    parts = _parts(positions)
    compared = compare(
        {
            (part, name): (b.within(mask), a.within(mask))
            for part, mask in parts.items()
            for name, (b, a) in pairs.items()
        },
        seed=seed,
    )
    return {
        part: Part(int(mask.sum()), {name: compared[part, name] for name in pairs})
        for part, mask in parts.items()
    }


def _parts(positions: Sequence[Position]) -> dict[str, NDArray[np.bool_]]:
    """A mask of the positions of each part. Parts without positions are left out."""
    members = {ALL: [True] * len(positions)}
    members |= {phase.value: [p.phase is phase for p in positions] for phase in Phase}
    members |= {colour: [mover(p) == colour for p in positions] for colour in COLOURS}
    return {part: np.asarray(mask) for part, mask in members.items() if any(mask)}


def mover(position: Position) -> str:
    """The side to move: `white` or `black`."""
    return "white" if position.fen.split()[1] == "w" else "black"


def readable(trace: Trace) -> bool:
    """Whether the answer's box has the notation of a move."""
    return trace.verdict.outcome in READABLE


def legal(trace: Trace) -> bool:
    """Whether the answer is a legal move."""
    return trace.verdict.outcome is Outcome.LEGAL


def _reward(trace: Trace) -> float:
    return trace.verdict.reward


def _regret(trace: Trace) -> float:
    return trace.verdict.regret or 0.0


def _best(trace: Trace) -> bool:
    return legal(trace) and trace.verdict.move == trace.verdict.best


def _greedy(answers: Answers) -> tuple[Trace, ...]:
    return (answers.greedy,)


def _sampled(answers: Answers) -> tuple[Trace, ...]:
    return answers.samples


def _mean(
    quantity: Callable[[Trace], float],
    of: Callable[[Answers], tuple[Trace, ...]],
    *,
    where: Callable[[Trace], bool] = lambda _: True,
) -> Callable[[Sequence[Answers]], Ratio]:
    def ratio(side: Sequence[Answers]) -> Ratio:
        kept = [[trace for trace in of(answers) if where(trace)] for answers in side]
        return Ratio.of([sum(map(quantity, traces)) for traces in kept], [len(traces) for traces in kept])

    return ratio


_RATIOS: Mapping[str, Callable[[Sequence[Answers]], Ratio]] = {
    "legal_rate": _mean(legal, _sampled),
    "legal_rate_greedy": _mean(legal, _greedy),
    "reward": _mean(_reward, _sampled),
    "regret_legal": _mean(_regret, _sampled, where=legal),
    "box_rate": _mean(readable, _sampled),
    "regret_legal_greedy": _mean(_regret, _greedy, where=legal),
    "reward_greedy": _mean(_reward, _greedy),
    "best_move_rate": _mean(_best, _sampled),
}


def _both_legal(before: Sequence[Answers], after: Sequence[Answers]) -> tuple[Ratio, Ratio]:
    means = [(_mean_regret(b), _mean_regret(a)) for b, a in zip(before, after, strict=True)]
    counts = [float(b is not None and a is not None) for b, a in means]
    sides = [
        Ratio.of([(m[side] or 0.0) * n for m, n in zip(means, counts, strict=True)], counts)
        for side in (0, 1)
    ]
    return sides[0], sides[1]


def _mean_regret(answers: Answers) -> float | None:
    regrets = [_regret(trace) for trace in answers.samples if legal(trace)]
    return sum(regrets) / len(regrets) if regrets else None
