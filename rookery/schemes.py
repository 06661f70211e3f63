r"""The schemes, which turn a judged answer into a reward.

A scheme is a weighted sum of terms. At least one term says how good the move is; `mate` adds what win
probabilities hardly show, `format` and `length` look at the text around the move, `candidates` at the moves
that the reasoning names, `truth` at what it says about the board. Only a legal move earns terms. Without one,
the reward is below that of the worst legal move, by a margin in proportion to the scheme's range, so no text
makes up for a missing move.
"""

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from rookery.answers import with_think_tags
from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Outcome

DEFAULT = "delta"

WRONG_MOVE = 0.2
"""How far below the worst legal move an answer is that names a move, but not one legal move.

The unit is the scheme's range, from its lowest to its highest reward."""

NO_MOVE = 0.5
"""The same for an answer that names no move. It is larger, so that naming an illegal move is progress."""

_SHORTFALL: Mapping[Outcome, float] = MappingProxyType(
    {
        Outcome.ILLEGAL: WRONG_MOVE,
        Outcome.AMBIGUOUS: WRONG_MOVE,
        Outcome.NULL_MOVE: WRONG_MOVE,
        Outcome.UNPARSABLE: NO_MOVE,
        Outcome.EMPTY_BOX: NO_MOVE,
        Outcome.TOO_LONG: NO_MOVE,
        Outcome.NO_BOX: NO_MOVE,
        Outcome.TRUNCATED: NO_MOVE,
    }
)

MAX_SCHEME_CHARS = 200

LENGTH_CHARS = 4000
"""The characters that `length` allows if no number is given: about a thousand tokens."""

CANDIDATES = 3
"""The moves that `candidates` expects if no number is given."""

MAX_CANDIDATES = 10
"""Each candidate takes a search."""


@dataclass(frozen=True, slots=True)
class TermInput:
    """The input of a term: win probabilities of the side to move, and the answer's text.

    `win_worst` is that of the worst legal move, `model` the reward model's opinion of the move, in [0, 1].
    `wins_named` are those of the different legal moves among the first that the reasoning names, and
    `legal_moves` is the number of all legal moves. `truth` is the value of what the reasoning says about the
    board, in [-1, 1]. `custom` has the values of users' functions by name. `played` is the engine's score of
    the move. They are set only for terms that need them.
    """

    win_best: float
    win_played: float
    response: str
    win_worst: float | None = None
    model: float | None = None
    wins_named: tuple[float, ...] = ()
    legal_moves: int = 0
    truth: float | None = None
    custom: Mapping[str, float] = field(default_factory=dict)
    played: Evaluation | None = None

    @property
    def regret(self) -> float:
        """The win probability that the move loses, in [0, 1].

        Never negative: if the move scores above the best one, that is noise between two searches.
        """
        return max(0.0, self.win_best - self.win_played)


@dataclass(frozen=True, slots=True)
class Term:
    """A named function of the inputs, with values in [`low`, `high`].

    `version` is increased whenever a value changes. `candidates` is how many of the moves that the reasoning
    names it looks at. `ask` gives the values of a user's function: for a FEN, completions and their moves.
    `unavailable_reason` says why a user's server cannot be asked now, or None. `close` closes the connections
    to it.
    """

    name: str
    version: int | str
    low: float
    high: float
    value: Callable[[TermInput], float]
    judges_move: bool = True
    needs_worst: bool = False
    needs_model: bool = False
    needs_reading: bool = False
    needs_score: bool = False
    candidates: int = 0
    ask: Callable[[str, Sequence[str], Sequence[str]], Awaitable[list[float]]] | None = None
    unavailable_reason: Callable[[], Awaitable[str | None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Scheme:
    """A weighted sum of terms. `text` is the scheme as the caller wrote it, without spaces."""

    text: str
    terms: tuple[tuple[float, Term], ...]

    @property
    def id(self) -> str:
        """The scheme's part of `reward_version`: `delta-1`, or `1*delta-1+0.1*format-1`."""
        (weight, first), *rest = self.terms
        if not rest and weight == 1.0:
            return f"{first.name}-{first.version}"
        # With all digits of the weights, because different weights give different rewards.
        return "+".join(
            f"{repr(weight).removesuffix('.0')}*{term.name}-{term.version}" for weight, term in self.terms
        )

    @property
    def low(self) -> float:
        """The lowest reward of a legal move."""
        return sum(weight * term.low for weight, term in self.terms)

    @property
    def high(self) -> float:
        """The highest reward."""
        return sum(weight * term.high for weight, term in self.terms)

    @property
    def needs_worst(self) -> bool:
        """Whether every legal move must be searched."""
        return any(term.needs_worst for _, term in self.terms)

    @property
    def needs_model(self) -> bool:
        """Whether a reward model must be asked."""
        return any(term.needs_model for _, term in self.terms)

    @property
    def needs_reading(self) -> bool:
        """Whether the reasoning must be read."""
        return any(term.needs_reading for _, term in self.terms)

    @property
    def needs_score(self) -> bool:
        """Whether the engine's score of the move must be known, not only its win probability."""
        return any(term.needs_score for _, term in self.terms)

    @property
    def candidates(self) -> int:
        """How many of the moves that the reasoning names must be searched."""
        return max(term.candidates for _, term in self.terms)

    def components(self, inputs: TermInput) -> dict[str, float]:
        """The weighted terms of a legal move, by name. Their sum is the reward."""
        return {term.name: weight * term.value(inputs) for weight, term in self.terms}

    @property
    def engine_terms(self) -> "Scheme | None":
        """The terms that the engine alone decides. They reward a move that the reasoning only names.

        None if none of them judges the move.
        """
        by_engine = tuple(
            (weight, term)
            for weight, term in self.terms
            if (term.judges_move or term.needs_score) and not (term.needs_model or term.ask)
        )
        return Scheme(self.text, by_engine) if any(term.judges_move for _, term in by_engine) else None

    def penalty(self, outcome: Outcome) -> float:
        """The reward of an answer without a legal move."""
        return self.low - _SHORTFALL[outcome] * (self.high - self.low)


def _accuracy(inputs: TermInput) -> float:
    """Lichess's accuracy of a move, as a fraction (lila, `AccuracyPercent.scala`, with its bonus of 1).

    The bonus makes up for the noise of an analysis. In the formula, the loss is in percent.
    """
    if inputs.regret == 0.0:
        return 1.0
    percent = 103.1668100711649 * math.exp(-0.04354415386753951 * 100 * inputs.regret) - 3.166924740191411
    return max(0.0, min(100.0, percent + 1.0)) / 100


def _minmax(inputs: TermInput) -> float:
    """The place of the move between the worst legal move (0) and the best (1); 1 if all are equal."""
    worst = inputs.win_played if inputs.win_worst is None else inputs.win_worst
    span = inputs.win_best - worst
    return 1.0 if span <= 0.0 else 1.0 - min(1.0, inputs.regret / span)


def _model(inputs: TermInput) -> float:
    """The reward model's opinion of the move."""
    if inputs.model is None:
        raise ValueError("the reward model was not asked")
    return inputs.model


_THOUGHT = re.compile(r"\s*+<think>\s*+[^<\s][^<]*+</think>[^<]*+")
_BOX = re.compile(r"\\boxed\s*\{")


def _format(inputs: TermInput) -> float:
    """1 for one `<think>` that is not empty, then text with one box and no other tag; else 0."""
    if _THOUGHT.fullmatch(with_think_tags(inputs.response)) is None:
        return 0.0
    return 1.0 if len(_BOX.findall(inputs.response)) == 1 else 0.0


def _mate(inputs: TermInput) -> float:
    """1/n if the move mates in n moves, by the engine's search of it; else 0.

    Win probabilities hardly show this: where every move wins, a missed mate costs nothing. There is no price
    for being mated, because it would lower the reward of illegal moves everywhere (`Scheme.penalty`).
    """
    if inputs.played is None:
        raise ValueError("the score of the move is not known")
    mate = inputs.played.mate
    return 1 / mate if mate is not None and mate > 0 else 0.0


def _truth(inputs: TermInput) -> float:
    """True claims of the reasoning against false ones."""
    if inputs.truth is None:
        raise ValueError("the reasoning was not read")
    return inputs.truth


def _length(allowed: int) -> Term:
    def value(inputs: TermInput) -> float:
        return -min(1.0, max(0, len(inputs.response) - allowed) / allowed)

    return Term(f"length({allowed})", 1, low=-1.0, high=0.0, value=value, judges_move=False)


def _candidates(count: int) -> Term:
    """The share of the first `count` moves that are legal and different, times 1 less the best one's regret.

    Moves named later do not count, so a list of all moves is worth as much as its beginning. In a position
    with fewer legal moves, all of them are enough.
    """

    def value(inputs: TermInput) -> float:
        if not inputs.wins_named:
            return 0.0
        share = min(1.0, len(inputs.wins_named) / min(count, inputs.legal_moves))
        return share * (1.0 - max(0.0, inputs.win_best - max(inputs.wins_named)))

    return Term(
        f"candidates({count})", 2, low=0.0, high=1.0, value=value, judges_move=False, candidates=count
    )


TERMS: Mapping[str, Term] = MappingProxyType(
    {
        term.name: term
        for term in (
            # Not -regret: the best move earns 0.0, never -0.0.
            Term("delta", 1, low=-1.0, high=0.0, value=lambda inputs: 0.0 - inputs.regret),
            Term("best", 2, low=0.0, high=1.0, value=lambda inputs: float(inputs.regret == 0.0)),
            Term("accuracy", 1, low=0.0, high=1.0, value=_accuracy),
            Term("minmax", 1, low=0.0, high=1.0, value=_minmax, needs_worst=True),
            Term("model", 1, low=0.0, high=1.0, value=_model, needs_model=True),
            Term("mate", 1, low=0.0, high=1.0, value=_mate, judges_move=False, needs_score=True),
            Term("format", 1, low=0.0, high=1.0, value=_format, judges_move=False),
            Term("truth", 1, low=-1.0, high=1.0, value=_truth, judges_move=False, needs_reading=True),
        )
    }
)
"""The terms by name, except `length` and `candidates`, which take a number."""

_TERM = re.compile(r"(?:(\d+(?:\.\d+)?|\.\d+)\*)?([a-z][a-z0-9_]*)(?:\((\d{1,7})\))?")


@lru_cache(maxsize=256)
def find_scheme(text: str, custom: tuple[Term, ...] = ()) -> Scheme:
    """The scheme of `text`: a term, or a weighted sum such as `delta+0.1*format+0.2*length(2000)`.

    `custom` are the terms of users' functions.

    Raises:
        InvalidInput: `text` is not a scheme, names a term twice, or has no term that judges the move.
    """
    if len(text) > MAX_SCHEME_CHARS:
        raise InvalidInput(f"a scheme cannot have {len(text)} characters: {text[:MAX_SCHEME_CHARS]!r}...")
    parts = "".join(text.split()).split("+")
    scheme = Scheme("+".join(parts), tuple(_read_term(part, text, custom) for part in parts))
    names = [term.name.partition("(")[0] for _, term in scheme.terms]
    if len(set(names)) < len(names):
        raise InvalidInput(f"scheme {text!r} names a term twice")
    if not any(term.judges_move for _, term in scheme.terms):
        raise InvalidInput(
            f"scheme {text!r} has no term that judges the move: add delta, best, accuracy, minmax or model"
        )
    return scheme


def _read_term(part: str, text: str, custom: tuple[Term, ...]) -> tuple[float, Term]:
    match = _TERM.fullmatch(part)
    if match is None:
        raise InvalidInput(f"no scheme {text!r}: {part!r} is not a term such as delta or 0.1*format")
    weight, name, number = float(match[1] or 1.0), match[2], match[3]
    if not 0 < weight <= 1000:
        raise InvalidInput(f"scheme {text!r}: weight {match[1]} is not in (0, 1000]")
    if name == "length" and (chars := int(number or LENGTH_CHARS)):
        return weight, _length(chars)
    if name == "candidates" and 1 <= (count := int(number or CANDIDATES)) <= MAX_CANDIDATES:
        return weight, _candidates(count)
    if name == "graded":
        raise InvalidInput(f"scheme {text!r}: graded judges tasks P and A, not moves")
    terms = {**TERMS, **{term.name: term for term in custom}}
    if name not in terms or number is not None:
        raise InvalidInput(
            f"no scheme {part!r}: choose from {', '.join(terms)}, length, length(N), candidates, "
            f"candidates(N) for N up to {MAX_CANDIDATES}"
        )
    return weight, terms[name]
