"""Filters: reads from the address which answers a view shows, and writes that as conditions in SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

_ANSWER_COLUMNS = {
    **{name: f"a.{name}" for name in ("reward", "advantage", "regret", "length", "surprise")},
    "turn": "(a.turn + 1)",
    "component": "a.components[?]",
}
_GROUP_COLUMNS = {"version": "g.version", "age": "g.age"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL, with its parameters."""

    sql: str
    values: tuple[Any, ...]

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"{self.sql} AND {other.sql}", (*self.values, *other.values))


class Filter(BaseModel, extra="forbid", use_attribute_docstrings=True):
    """Selects answers. A group is shown if one of its answers passes. Bounds are inclusive."""

    outcome: list[str] = []
    """Any of these outcomes."""
    phase: list[str] = []
    """Any of opening, middlegame, endgame."""
    episode: list[str] = []
    """Any of these kinds of episode: move, tools, game, or one of another package."""
    result: list[Literal["won", "drawn", "lost"]] = []
    """Of its game, for the policy."""
    turn_min: int | None = Field(default=None, ge=0, le=10**6)
    """Its place in its episode, counted from 1."""
    turn_max: int | None = Field(default=None, ge=0, le=10**6)
    text: str = Field(default="", max_length=200)
    """What the answer's text contains, in any case."""
    component: str = Field(default="", max_length=100)
    """Name of a component of the reward, for the bounds of `component_min` and `component_max`."""
    component_min: float | None = None
    component_max: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    reward_below: float | None = None
    """Exclusive, as the upper edge of a bar of the histogram is."""
    advantage_min: float | None = None
    advantage_max: float | None = None
    regret_min: float | None = None
    regret_max: float | None = None
    length_min: float | None = None
    """Tokens of the answer."""
    length_max: float | None = None
    surprise_min: float | None = None
    """Mean negative log-probability of its tokens, in nats."""
    surprise_max: float | None = None
    version_min: float | None = None
    """The version that wrote it."""
    version_max: float | None = None
    age_min: float | None = None
    """Versions between writing and training."""
    age_max: float | None = None

    def of_groups(self, run: str) -> Condition:
        """The conditions on the group `g`, without those on its answers."""
        return (
            Condition("g.run = ?", (run,))
            & self._ranges(_GROUP_COLUMNS)
            & _one_of("g.phase", self.phase)
            & _one_of("g.kind", self.episode)
        )

    def of_answers(self, run: str) -> Condition:
        """The conditions on the answer `a`, without those on its group."""
        text = (self.text,) if self.text else ()
        return (
            Condition("a.run = ?", (run,))
            & self._ranges(_ANSWER_COLUMNS)
            & _one_of("a.outcome", self.outcome)
            & _one_of("a.result", self.result)
            & Condition("contains(lower(a.text), lower(?))" if text else "true", text)
        )

    def groups(self, run: str) -> Condition:
        groups, answers = self.of_groups(run), self.of_answers(run)
        if len(answers.values) == 1:  # the run alone
            return groups
        return groups & Condition(f"g.g IN (SELECT a.g FROM answers a WHERE {answers.sql})", answers.values)

    def answers(self, run: str) -> Condition:
        groups, answers = self.of_groups(run), self.of_answers(run)
        if len(groups.values) == 1:
            return answers
        return answers & Condition(f"a.g IN (SELECT g.g FROM groups g WHERE {groups.sql})", groups.values)

    def _ranges(self, columns: Mapping[str, str]) -> Condition:
        condition = Condition("true", ())
        for name, column in columns.items():
            for bound, comparison in (("min", ">="), ("max", "<="), ("below", "<")):
                limit = getattr(self, f"{name}_{bound}", None)
                if limit is not None:
                    component = (self.component,) if name == "component" else ()
                    condition &= Condition(f"{column} {comparison} ?", (*component, limit))
        return condition


def _one_of(column: str, values: Sequence[str]) -> Condition:
    if not values:
        return Condition("true", ())
    return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))
