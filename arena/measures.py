"""The metrics of judged answers to positions.

A player gives one greedy answer and several sampled ones to each position. Samples are at temperature 1
without truncation of the distribution, as in training. A metric is over the sampled answers unless its name
says greedy.

`regret_legal` compares different sets of answers: a position where one player has a legal move and another
has none counts for one of them only, and these are the hard positions. `regret_both_legal` removes this
effect: only positions where all players have a legal sample count, each with the mean over its legal samples.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from arena.answers import Answers, PlayerAnswer
from arena.stats import Ratio
from arena.tables import METRICS, Metric
from rookery.candidates import distinct
from rookery.trace import Outcome, Phase

READABLE = frozenset({Outcome.LEGAL, Outcome.ILLEGAL, Outcome.AMBIGUOUS, Outcome.NULL_MOVE})
"""The outcomes of answers with a closed box that has the notation of a move."""

Measure = Callable[[Sequence[Answers]], Ratio]


def readable(answer: PlayerAnswer) -> bool:
    """Whether the answer names a move in the notation that it was asked for."""
    return answer.verdict.outcome in READABLE


def legal(answer: PlayerAnswer) -> bool:
    """Whether the answer is a legal move."""
    return answer.verdict.outcome is Outcome.LEGAL


def regret(answer: PlayerAnswer) -> float:
    """The win probability that the move loses; 0 if there is none."""
    return answer.verdict.regret or 0.0


def best(answer: PlayerAnswer) -> bool:
    """Whether the move is in the set of the engine's best: no other has a higher win probability."""
    return legal(answer) and regret(answer) == 0.0


def greedy(answers: Answers) -> tuple[PlayerAnswer, ...]:
    """The greedy answer alone."""
    return (answers.greedy,)


def sampled(answers: Answers) -> tuple[PlayerAnswer, ...]:
    """The sampled answers; of a player that is only asked once, its answer."""
    return answers.samples or (answers.greedy,)


def mean(
    quantity: Callable[[PlayerAnswer], float | None],
    of: Callable[[Answers], tuple[PlayerAnswer, ...]] = greedy,
    *,
    where: Callable[[PlayerAnswer], bool] = lambda _: True,
) -> Measure:
    """The mean of a quantity over answers, except those for which it is None or that are not `where`."""

    def ratio(side: Sequence[Answers]) -> Ratio:
        values = [
            [value for answer in of(answers) if where(answer) and (value := quantity(answer)) is not None]
            for answers in side
        ]
        return Ratio.of([sum(row) for row in values], [len(row) for row in values])

    return ratio


def pass_at(k: int, *, of: int, right: int) -> float:
    """The probability that one of `k` answers is right, drawn from `of` answers of which `right` are right.

    The unbiased estimator of arXiv 2107.03374, section 2.1.

    >>> pass_at(1, of=4, right=1), pass_at(2, of=4, right=1), pass_at(4, of=4, right=0)
    (0.25, 0.5, 0.0)
    """
    return 1.0 - math.comb(of - right, k) / math.comb(of, k)


def passes(quantity: Callable[[PlayerAnswer], bool], k: int) -> Measure:
    """pass@k of a quantity over the sampled answers, or over all of them if there are fewer than k."""

    def passed(answers: Answers) -> float:
        drawn = sampled(answers)
        return pass_at(min(k, len(drawn)), of=len(drawn), right=sum(map(quantity, drawn)))

    return lambda side: Ratio.of([passed(answers) for answers in side])


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b of two lists of values, in [-1, 1]; None if one of them has no two different values.

    >>> kendall_tau([3, 2, 1], [30, 20, 10]), kendall_tau([3, 2, 1], [30, 10, 20]), kendall_tau([1], [1])
    (1.0, 0.3333333333333333, None)
    """
    columns = [np.asarray(values, dtype=np.float64)[:, None] for values in (first, second)]
    signs = [np.sign(column - column.T) for column in columns]
    pairs = math.sqrt(np.abs(signs[0]).sum() * np.abs(signs[1]).sum())
    return float((signs[0] * signs[1]).sum()) / pairs if pairs else None


def argsort_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau of the two argsorts, as google-deepmind/searchless_chess reports it.

    It compares the permutations that sort the lists, not the ranks, so from three values on it differs.

    >>> argsort_tau([2, 3, 1], [1, 3, 2]), kendall_tau([2, 3, 1], [1, 3, 2])
    (-1.0, 0.3333333333333333)
    """
    return kendall_tau(*(list(np.argsort(values, kind="stable")) for values in (first, second)))


def _taus(tau: Callable[[Sequence[float], Sequence[float]], float | None]) -> Measure:
    def value(answer: PlayerAnswer) -> float | None:
        scores = {move: s for move, s in distinct(answer.candidates).items() if move in answer.wins}
        return tau(list(scores.values()), [answer.wins[move] for move in scores]) if scores else None

    return mean(value)


def move_metrics(samples: int) -> dict[Metric, Measure]:
    """The metrics of moves. Those of sampled answers are left out if there are none."""
    of_greedy = {
        "legal_rate_greedy": mean(legal),
        "action_accuracy_greedy": mean(best),
        "regret_legal_greedy": mean(regret, where=legal),
        "kendall_tau": _taus(kendall_tau),
        "kendall_tau_argsort": _taus(argsort_tau),
    }
    of_samples = {
        "action_accuracy": mean(best, sampled),
        "reward": mean(lambda answer: answer.verdict.reward, sampled),
        "regret_legal": mean(regret, sampled, where=legal),
        "box_rate": mean(readable, sampled),
    }
    measures = {"legal_rate": mean(legal, sampled), **of_greedy, **of_samples} if samples else of_greedy
    return {METRICS["positions"][name]: measure for name, measure in measures.items()} | {
        Metric(f"{name}_pass@{k}", f"{title}, pass@{k}", f"at least one of {k} sampled answers"): passes(
            right, k
        )
        for name, title, right in (("legal", "Legal", legal), ("best", "Best move", best))
        for k in (2**i for i in range(1, samples.bit_length()))
    }


BOTH_LEGAL = METRICS["positions"]["regret_both_legal"]


def both_legal(sides: Mapping[str, Sequence[Answers]]) -> dict[str, Ratio]:
    """The mean regret over positions where every player has a legal sample, by player."""
    means = {name: [_mean_regret(answers) for answers in side] for name, side in sides.items()}
    counts = [float(None not in row) for row in zip(*means.values(), strict=True)]
    return {
        name: Ratio.of([(value or 0.0) * count for value, count in zip(row, counts, strict=True)], counts)
        for name, row in means.items()
    }


def _mean_regret(answers: Answers) -> float | None:
    regrets = [regret(answer) for answer in answers.samples if legal(answer)]
    return sum(regrets) / len(regrets) if regrets else None


def parts_of(side: Sequence[Answers]) -> dict[str, list[bool]]:
    """Which positions are in each part: a phase, or a side to move. Parts without positions are left out."""
    members = {phase.value: [answers.position.phase is phase for answers in side] for phase in Phase}
    members |= {
        f"{colour} to move": [f" {colour[0]} " in answers.position.fen for answers in side]
        for colour in ("white", "black")
    }
    return {part: mask for part, mask in members.items() if any(mask)}


def line_metrics(task: str) -> dict[Metric, Measure]:
    """The metrics of greedy `P:` or `A:` lines: components of the verdict, and the reward. A component that a
    verdict lacks counts as 0."""

    def part(name: str) -> Measure:
        return mean(lambda answer: (answer.line or answer.verdict).components.get(name, 0.0))

    grade = mean(lambda answer: (answer.line or answer.verdict).reward)
    return {metric: grade if name == "grade" else part(name) for name, metric in METRICS[task].items()}
