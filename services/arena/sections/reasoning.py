"""Reasoning: what the text before the move says, whether that is true, and whether the move follows from it.

It asks nothing: it looks at the greedy and sampled answers to the positions.
"""

from collections.abc import Callable, Mapping, Sequence

from commentary import Reading
from rookery.answers import reasoning_of
from rookery.rookworld import read_policy_answer
from services.arena.answers import Answer, Answers, read_claims
from services.arena.candidates import distinct
from services.arena.measures import legal, mean
from services.arena.stats import Ratio
from services.arena.tables import Section, Table, compared
from services.arena.wording import Metric

_NOTE = (
    "Over greedy and sampled answers. Candidates are the moves that the text before the box names, or those "
    "of a P: line. The move follows from the text if it is one of them. Claims about the board are checked "
    "in the sentences that the commentary library understands."
)


def reasoning_section(
    sides: Mapping[str, Sequence[Answers]], *, players: Sequence[str], seed: int
) -> Section:
    """The table of `sides`: the answers of each language model to the same positions."""
    rows = [
        (metric, {name: mean(value, lambda answers: answers.every)(side) for name, side in sides.items()})
        for metric, value in _MEASURED.items()
    ]
    readings = {
        name: [
            [found for answer in answers.every if (found := read_claims(answer, answers.fen))]
            for answers in side
        ]
        for name, side in sides.items()
    }
    rows += [
        (
            metric,
            {
                name: Ratio.of([sum(map(part, row)) for row in side], [sum(map(whole, row)) for row in side])
                for name, side in readings.items()
            },
        )
        for metric, (part, whole) in _READ.items()
    ]
    kept = [(metric, {n: r for n, r in by_name.items() if r.counts.any()}) for metric, by_name in rows]
    table = Table(
        "metrics", "Reasoning", compared([row for row in kept if row[1]], players=players, seed=seed)
    )
    return Section("reasoning", "Reasoning", _NOTE, [table] if table.rows else [])


def _reasons(answer: Answer) -> str:
    return "" if read_policy_answer(answer.text) else reasoning_of(answer.text)


def _true(reading: Reading) -> int:
    return sum(claim.true is True for claim in reading.claims)


def _checked(reading: Reading) -> int:
    return _true(reading) + len(reading.false)


def _named(answer: Answer) -> dict[str, float] | None:
    """The scores of the distinct candidates of an answer with a legal move; None if there are none."""
    return distinct(answer.candidates) or None if legal(answer) else None


def _among(answer: Answer) -> float | None:
    named, move = _named(answer), answer.verdict.move
    return None if named is None or move is None else float(move.uci in named)


def _first(answer: Answer) -> float | None:
    named, move = _named(answer), answer.verdict.move
    return None if named is None or move is None else float(move.uci == max(named, key=lambda m: named[m]))


def _distinct_share(answer: Answer) -> float | None:
    return len(distinct(answer.candidates)) / len(answer.candidates) if answer.candidates else None


_MEASURED = {
    Metric(
        "with_reasoning", "With reasoning", "share of answers with text before the box", better="neither"
    ): lambda a: float(bool(_reasons(a))),
    Metric("tokens", "Tokens", "of an answer", "count", "neither"): lambda a: float(a.tokens),
    Metric("characters", "Characters", "of the reasoning", "count", "neither"): lambda a: float(
        len(_reasons(a))
    ),
    Metric("candidates", "Candidates", "moves named in an answer", "count", "neither"): lambda a: float(
        len(a.candidates)
    ),
    Metric("distinct_candidates", "Distinct candidates", "share of the moves named that are no repetition"): (
        _distinct_share
    ),
    Metric("move_among_candidates", "Move is a candidate", "of legal answers with candidates"): _among,
    Metric(
        "move_is_first", "Move is the first candidate", "or has the highest evaluation", better="neither"
    ): _first,
}
"""Each metric with its value for one answer; None if the answer does not count."""

_READ: Mapping[Metric, tuple[Callable[[Reading], int], Callable[[Reading], int]]] = {
    Metric(
        "sentences_read", "Sentences read", "share of the sentences that are understood", better="neither"
    ): (
        lambda reading: len(reading.sentences) - len(reading.unread),
        lambda reading: len(reading.sentences),
    ),
    Metric("claims", "Claims", "checked on the board, in a text", "count", "neither"): (
        _checked,
        lambda _: 1,
    ),
    Metric("claims_true", "Claims that are true", "of those checked on the board"): (_true, _checked),
}
"""Each metric as a ratio of two sums over the texts that were read."""
