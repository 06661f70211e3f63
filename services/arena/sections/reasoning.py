"""Reasoning: what the text before the move says, and whether the move follows from it.

It asks nothing: it looks at the greedy and sampled answers to the positions.
"""

from collections.abc import Mapping, Sequence

from rookery.answers import reasoning_of
from rookery.candidates import distinct
from rookery.rookworld import read_policy_answer
from services.arena.answers import Answer, Answers
from services.arena.measures import legal, mean
from services.arena.tables import Section, Table, compared
from services.arena.wording import Metric

_NOTE = (
    "Over greedy and sampled answers. Candidates are the moves that the text before the box names, or those "
    "of a P: line. The move follows from the text if it is one of them."
)


def reasoning_section(
    sides: Mapping[str, Sequence[Answers]], *, players: Sequence[str], seed: int
) -> Section:
    """The table of `sides`: the answers of each language model to the same positions."""
    rows = [
        (metric, {name: mean(value, lambda answers: answers.every)(side) for name, side in sides.items()})
        for metric, value in _MEASURED.items()
    ]
    kept = [(metric, {n: r for n, r in by_name.items() if r.counts.any()}) for metric, by_name in rows]
    table = Table(
        "metrics", "Reasoning", compared([row for row in kept if row[1]], players=players, seed=seed)
    )
    return Section("reasoning", "Reasoning", _NOTE, [table] if table.rows else [])


def _reasons(answer: Answer) -> str:
    return "" if read_policy_answer(answer.text) else reasoning_of(answer.text)


def _named(answer: Answer) -> dict[str, float] | None:
    """The scores of the distinct candidates of an answer with a legal move; None if there are none."""
    return distinct(answer.candidates) or None if legal(answer) else None


def _among(answer: Answer) -> float | None:
    named, move = _named(answer), answer.verdict.move
    return None if named is None or move is None else float(move.uci in named)


def _first(answer: Answer) -> float | None:
    named, move = _named(answer), answer.verdict.move
    return None if named is None or move is None else float(move.uci == max(named, key=lambda m: named[m]))


def distinct_share(answer: Answer) -> float | None:
    """The share of the candidates that are no repetition; None without candidates."""
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
        distinct_share
    ),
    Metric("move_among_candidates", "Move is a candidate", "of legal answers with candidates"): _among,
    Metric(
        "move_is_first", "Move is the first candidate", "or has the highest evaluation", better="neither"
    ): _first,
}
"""Each metric with its value for one answer; None if the answer does not count."""
