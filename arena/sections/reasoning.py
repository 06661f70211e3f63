"""Reasoning: what the text before the move says, whether that is true, and whether the move follows from it.

It sends no requests: it reads the answers to the positions, with and without reasoning.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import chess

from arena.answers import Answers, PlayerAnswer, read_claims
from arena.measures import greedy, legal, mean, regret, sampled
from arena.stats import Ratio
from arena.tables import METRICS, Section, Table, compared
from commentary import TextReading
from rookery.answers import reasoning_of
from rookery.candidates import best_stated, distinct, stated_evaluations
from rookery.rookworld import read_policy_answer

Side = TypeVar("Side")
Value = TypeVar("Value")

_NOTE = (
    "Over greedy and sampled answers together, but for distinct candidates. Candidates are the moves "
    "that the text before the box names, or those of a P: line. The move follows from the text if it is one "
    "of them. Claims about the board are checked in the sentences that the commentary library understands."
)

_STATED_NOTE = (
    "Of greedy answers, as Verifiable Process Supervision (arXiv 2605.12519) judges reasoning: the "
    "difference between the win probability that the text states and the engine's, and whether the move in "
    "the box is the best by the values in the text."
)

_GAIN_NOTE = (
    "Regret of greedy answers at the positions where all three moves are legal: the move in the box, the "
    "candidate named first, and the move of an answer that begins with the box. A gain is the regret that "
    "the reasoning saves."
)


def reasoning_section(
    sides: Mapping[str, Sequence[Answers]],
    *,
    players: Sequence[str],
    seed: int,
    without: Mapping[str, Sequence[Answers]] = MappingProxyType({}),
) -> Section:
    """The tables of `sides`: the answers of each language model to the same positions. `without` has the
    answers of those that were also asked to answer without reasoning."""
    readings, stated = _each(_readings, sides), _each(_all_stated, sides)
    gains = {n: [_regrets(*pair) for pair in zip(sides[n], side, strict=True)] for n, side in without.items()}
    every = operator.attrgetter("every")
    rows = {
        **{key: _each(mean(value, every), sides) for key, value in _ANSWER_METRICS.items()},
        **{key: _each(partial(_ratio, *sums), readings) for key, sums in _READING_METRICS.items()},
        **{key: _each(mean(distinct_share, of), sides) for key, of in _REPETITION_METRICS.items()},
    }
    gain_rows = {key: _each(partial(_weighted_mean, weights), gains) for key, weights in _GAINS.items()}
    stated_rows = {key: _each(partial(_sums, value), stated) for key, value in _STATED_METRICS.items()}
    tables = []
    for name, title, measured, note in (
        ("metrics", "Reasoning", rows, ""),
        ("gain", "Does the reasoning help?", gain_rows, _GAIN_NOTE),
        ("stated", "Evaluations in the text", stated_rows, _STATED_NOTE),
    ):
        named = [(METRICS["reasoning"][key], by_player) for key, by_player in measured.items()]
        tables.append(Table(name, title, compared(named, players=players, seed=seed), note))
    return Section("reasoning", "Reasoning", _NOTE, [table for table in tables if table.rows])


def _each(measure: Callable[[Side], Value], sides: Mapping[str, Side]) -> dict[str, Value]:
    return {name: measure(side) for name, side in sides.items()}


def _readings(side: Sequence[Answers]) -> list[list[TextReading]]:
    return [
        [reading for answer in answers.every if (reading := read_claims(answer, answers.fen))]
        for answers in side
    ]


def _ratio(
    part: Callable[[TextReading], int], whole: Callable[[TextReading], int], side: list[list[TextReading]]
) -> Ratio:
    return Ratio.of([sum(map(part, row)) for row in side], [sum(map(whole, row)) for row in side])


@dataclass(frozen=True, slots=True)
class _Stated:
    """The win probabilities that an answer states and those of the engine, by move or "" for the position.
    `best` are the best moves by at least two values, and `move` is the one in the box."""

    pairs: Mapping[str, tuple[float, float | None]]
    best: Collection[str]
    move: str


def _stated_wins(answers: Answers) -> _Stated | None:
    """What the greedy answer states; None if it has no legal move or no evaluation."""
    answer, verdict = answers.greedy, answers.greedy.verdict
    stated = stated_evaluations(answer.text, chess.Board(answers.fen)) if legal(answer) else {}
    if not stated or verdict.move is None:
        return None
    true_wins = {**answer.wins, "": verdict.win_before}
    pairs = {move: (evaluation.win, true_wins.get(move)) for move, evaluation in stated.items()}
    return _Stated(pairs, best_stated(stated), verdict.move.uci)


def _all_stated(side: Sequence[Answers]) -> list[_Stated | None]:
    return [_stated_wins(answers) for answers in side]


def _sums(value: Callable[[_Stated | None], list[float]], side: Sequence[_Stated | None]) -> Ratio:
    values = [value(stated) for stated in side]
    return Ratio.of([sum(row) for row in values], [len(row) for row in values])


_STATED_METRICS: Mapping[str, Callable[[_Stated | None], list[float]]] = {
    "stated": lambda stated: [float(len(stated.pairs)) if stated else 0.0],
    "stated_error": lambda stated: [
        abs(value - true) for value, true in (stated.pairs.values() if stated else ()) if true is not None
    ],
    "consistent": lambda stated: [float(stated.move in stated.best)] if stated and stated.best else [],
}
"""Each metric with the values of an answer that it is the mean of."""


def _regrets(answers: Answers, without: Answers) -> tuple[float, float, float] | None:
    """The regrets of the move in the box, the first candidate and the move without reasoning. None if one of
    them is not legal."""
    answer = answers.greedy
    scores, before = _candidate_scores(answer), answer.verdict.win_before
    first = max(scores, key=lambda move: scores[move]) if scores else ""
    if before is None or first not in answer.wins or not legal(without.greedy):
        return None
    return regret(answer), max(0.0, before - answer.wins[first]), regret(without.greedy)


def _weighted_mean(
    weights: tuple[int, int, int], regrets: Sequence[tuple[float, float, float] | None]
) -> Ratio:
    return Ratio.of_values(lambda row: sum(map(operator.mul, row, weights)), regrets)


_GAINS = {
    "regret_boxed": (1, 0, 0),
    "regret_first": (0, 1, 0),
    "regret_without": (0, 0, 1),
    "gain_over_first": (-1, 1, 0),
    "gain_over_none": (-1, 0, 1),
}
"""Each metric of the second table with its weights of the three regrets."""


def _reasoning_text(answer: PlayerAnswer) -> str:
    return "" if read_policy_answer(answer.text) else reasoning_of(answer.text)


def _true_claims(reading: TextReading) -> int:
    return sum(claim.true is True for claim in reading.claims)


def _checked_claims(reading: TextReading) -> int:
    return _true_claims(reading) + len(reading.false)


def _candidate_scores(answer: PlayerAnswer) -> dict[str, float] | None:
    """The scores of the distinct candidates of an answer with a legal move; None if there are none."""
    return distinct(answer.candidates) or None if legal(answer) else None


def _move_is_candidate(answer: PlayerAnswer) -> float | None:
    scores, move = _candidate_scores(answer), answer.verdict.move
    return None if scores is None or move is None else float(move.uci in scores)


def _move_is_first(answer: PlayerAnswer) -> float | None:
    scores, move = _candidate_scores(answer), answer.verdict.move
    return None if scores is None or move is None else float(move.uci == max(scores, key=lambda m: scores[m]))


def distinct_share(answer: PlayerAnswer) -> float | None:
    """The share of the candidates that are not repetitions; None without candidates."""
    return len(distinct(answer.candidates)) / len(answer.candidates) if answer.candidates else None


_ANSWER_METRICS: Mapping[str, Callable[[PlayerAnswer], float | None]] = {
    "with_reasoning": lambda answer: float(bool(_reasoning_text(answer))),
    "tokens": lambda answer: float(answer.tokens),
    "characters": lambda answer: float(len(_reasoning_text(answer))),
    "calls": lambda answer: answer.calls,
    "candidates": lambda answer: float(len(answer.candidates)),
    "move_among_candidates": _move_is_candidate,
    "move_is_first": _move_is_first,
}
"""Each metric with its value for one answer; None if the answer does not count."""

_READING_METRICS: Mapping[str, tuple[Callable[[TextReading], int], Callable[[TextReading], int]]] = {
    "sentences_read": (
        lambda reading: len(reading.sentences) - len(reading.unread),
        lambda reading: len(reading.sentences),
    ),
    "claims": (_checked_claims, lambda _: 1),
    "claims_true": (_true_claims, _checked_claims),
}
"""Each metric as a ratio of two sums over the texts that were read."""

_REPETITION_METRICS = {"distinct_candidates": sampled, "distinct_candidates_greedy": greedy}
"""The metrics of repetition, with the answers that they are over."""
