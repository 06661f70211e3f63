"""Concepts: one thing that can be said of a position or a move, all of it in one place.

`detect` finds it, fast, on bitboards; `holds` decides whether it is so, slowly and on its own, and never
calls `detect`; the templates say it and read it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import chess

from commentary.naming import Naming
from commentary.step import Step
from commentary.template import Template

Values = Mapping[str, Any]
Weight = float | Callable[[chess.Board, Values], float]
Truth = Callable[..., bool | None]
F = TypeVar("F", bound=Truth)


def no_truth(context: Any, **slots: Any) -> bool | None:
    """Stands for the truth of a concept until its function is given."""
    raise NotImplementedError("a concept without a truth")


@dataclass(frozen=True)
class Concept:
    """`holds(context, **slots)` gets what the slots of the template were read as.

    `detect` yields slot values from a board, or with `about_moves` from a `Step`. The weight says how much it
    matters beside others; negative ones are drawbacks of a move. `favours` names the slot of the side that is
    happier about it, `-side` that of the one that is not. Of what is detected only that with the slot `needs`
    is a finding.
    """

    name: str
    topic: str
    holds: Truth
    templates: tuple[Template, ...] = ()
    detect: Callable[[Any], Iterable[Values]] | None = None
    weight: Weight = 1.0
    favours: str = ""
    needs: str = ""
    about_moves: bool = False

    def detections(self, place: Any) -> Iterator[Values]:
        for values in self.detect(place) if self.detect else ():
            if not self.needs or values.get(self.needs) is not None:
                yield values

    def says(self, *templates: str) -> Self:
        """The concept with its templates, in the registry from now on."""
        start = "{move} " if self.about_moves else ""
        compiled = tuple(Template.of(template, start) for template in templates)
        registered = replace(self, templates=compiled)
        CONCEPTS[self.name] = registered
        return registered

    def __call__(self, holds: F) -> F:
        """Decorates the function that decides whether it is so."""
        CONCEPTS[self.name] = replace(self, holds=holds)
        return holds

    def options(self, naming: Naming, values: Values) -> list[Template]:
        """The templates that may be written with some values."""
        slots = {"move": "" if self.about_moves else None, **_sides(naming), **values}
        return [template for template in self.templates if template.fits(naming, slots)]

    def write(self, naming: Naming, values: Values) -> str:
        """A clause that states it."""
        return self._template(naming, values).write(naming, {**_sides(naming), **values})

    def do(self, naming: Naming, values: Values) -> str:
        """A verb phrase with marked verbs, whose subject is the move."""
        return self._template(naming, values).do(naming, {**_sides(naming), **values})

    def word(self, template: Template, naming: Naming, values: Values) -> str:
        """What `write` returns, or `do` for what a move does, with this template."""
        say = template.do if self.about_moves else template.write
        return say(naming, {**_sides(naming), **values})

    def _template(self, naming: Naming, values: Values) -> Template:
        options = self.options(naming, values)
        if not options:
            raise ValueError(f"no template of {self.name!r} fits {dict(values)!r}")
        return options[naming.least_used([option.source for option in options])]


def _sides(naming: Naming) -> Values:
    return {"us": naming.root.turn, "them": not naming.root.turn}


@dataclass(frozen=True)
class Finding:
    """A concept found in a position, with the values of its slots."""

    concept: Concept
    values: Values
    weight: float

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        """Squares of the pieces involved."""
        types = {name: kind for template in self.concept.templates for name, kind in template.slots.items()}
        squares: list[chess.Square] = []
        for name, value in self.values.items():
            if name in types and (types[name].squares or types[name].name == "square") and value is not None:
                squares += value if isinstance(value, list | tuple) else [value]
        return tuple(squares)

    @property
    def favours(self) -> chess.Color | None:
        """The side that is happier about it, if one is."""
        side = self.values.get(self.concept.favours.lstrip("-")) if self.concept.favours else None
        if side is None:
            return None
        return bool(side) != self.concept.favours.startswith("-")


CONCEPTS: dict[str, Concept] = {}
"""All of them by name; importing `commentary.concepts` fills it."""


def concept(name: str, *, topic: str, holds: Truth = no_truth, **facts: Any) -> Concept:
    """Declares a concept of positions, or one that the writer uses where it has a reason to.

        @concept("isolated pawn", topic="pawns", detect=_isolated, favours="-side").says(
            "{pawn} ~be isolated",
            "||{pawn} ~have no neighbours",
        )
        def _is_isolated(context: Context, pawn: int) -> bool: ...

    The truth is the function below it, or `holds`. `facts` are the other fields of `Concept`.
    """
    if name in CONCEPTS:
        raise ValueError(f"two concepts are named {name!r}")
    return Concept(name, topic, holds, **facts)


def of_topic(topic: str, *, about_moves: bool = False, weight: float = 1.0) -> Callable[..., Concept]:
    """Declares concepts of one topic; those about moves are what a move does, and begin with the verb."""
    return partial(concept, topic=topic, about_moves=about_moves, weight=weight)


move_concept = of_topic("moves", about_moves=True)


def when(test: Callable[[Any], object]) -> Callable[[Any], Iterator[Values]]:
    """A detector of what has no slots: it yields once if `test` holds."""
    return lambda place: iter([{}] if test(place) else ())


def of_moved(truth: Truth, slot: str) -> Truth:
    """The truth of what a move does: `truth` after it, of the piece that has moved in `slot`."""
    return lambda context, **slots: truth(context, **{slot: context.to}, **slots)


def every(truth: Callable[[chess.Board, int], object]) -> Truth:
    """The truth of a concept about squares or files: `truth` holds of each, and each is of the side named."""

    def all_are(context: Any, **slots: Any) -> bool:
        side = slots.pop("side", None)
        places = [n for value in slots.values() for n in (value if isinstance(value, Iterable) else [value])]
        right = side is None or all(context.board.color_at(square) == side for square in places)
        return bool(places) and right and all(truth(context.board, n) for n in places)

    return all_are


def position_findings(board: chess.Board) -> list[Finding]:
    """Everything worth knowing about a board."""
    return [
        Finding(concept, values, _weight(concept, board, values))
        for concept in CONCEPTS.values()
        if not concept.about_moves
        for values in concept.detections(board)
    ]


def move_findings(step: Step) -> list[Finding]:
    """Everything that a move does, the weightiest first, drawbacks last."""
    ends = {"moved": step.target, "here": step.target}
    findings = [
        Finding(concept, {**ends, **values}, _weight(concept, step.after, values))
        for concept in CONCEPTS.values()
        if concept.about_moves
        for values in concept.detections(step)
    ]
    return sorted(findings, key=lambda finding: -finding.weight)


def _weight(concept: Concept, board: chess.Board, values: Values) -> float:
    return concept.weight(board, values) if callable(concept.weight) else concept.weight
