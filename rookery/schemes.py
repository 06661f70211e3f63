r"""The schemes, which turn a judged answer into a reward.

A scheme is a weighted sum of terms. At least one term says how good the move is; `mate` adds what win
probabilities hardly show, `format` and `length` look at the text around the move, `candidates` at the moves
that the reasoning names, `values` at what it says they are worth, `consistency` at whether the move is the
best by that, `truth` at what it says about the board, `influence` at what that changes. Only a legal move
earns terms. Without one, the reward is below that of the worst legal move, by a margin in proportion to the
scheme's range, so no text makes up for a missing move.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Literal

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
"""The moves that `candidates` and `values` expect if no number is given."""

MAX_CANDIDATES = 10
"""Each candidate takes a search."""


Source = Literal[
    "regret",
    "win_worst",
    "score",
    "model",
    "custom",
    "response",
    "wins_named",
    "stated_errors",
    "consistency",
    "truth",
    "influence",
]
"""An attribute of `Evidence`."""

WITH_PROCESS_REWARDS = frozenset[Source]({"wins_named", "stated_errors", "truth", "influence"})
"""What terms use whose verdicts reward steps of the reasoning by themselves."""

_OF_THE_MOVE = frozenset[Source]({"regret", "win_worst", "model", "custom"})
_BY_ENGINE = frozenset[Source]({"regret", "win_worst", "score"})


class Evidence:
    """An answer with a legal move, of which terms ask what they look at: the attribute that a term `uses`.
    Win probabilities are those of the side to move. What a class does not override, it does not know."""

    response: str
    win_best: float
    win_played: float

    @property
    def regret(self) -> float:
        """The win probability that the move loses, in [0, 1]. Never negative: if the move scores above the
        best one, that is noise between two searches."""
        return max(0.0, self.win_best - self.win_played)

    @property
    def win_worst(self) -> float:
        """That of the worst legal move: all of them must be searched."""
        raise NotImplementedError

    @property
    def score(self) -> Evaluation:
        raise NotImplementedError

    @property
    def wins_named(self) -> Sequence[float]:
        """Those of the different legal moves among the first that the reasoning names, of which the scheme
        says how many."""
        raise NotImplementedError

    @property
    def stated_errors(self) -> Sequence[float]:
        """How far the win probabilities that the text states of these moves are from the engine's: 1 where it
        states none."""
        raise NotImplementedError

    @property
    def consistency(self) -> float:
        """1/n if the move is one of n that are best by the evaluations that the text states of at least two
        moves, else 0. If the scheme looks at the first moves that the reasoning names, only theirs count."""
        raise NotImplementedError

    @property
    def legal_moves(self) -> int:
        """How many there are. Known where `wins_named` are."""
        raise NotImplementedError

    @property
    def truth(self) -> float:
        """The value of what the reasoning says about the board, in [-1, 1]."""
        raise NotImplementedError

    @property
    def influence(self) -> float:
        """What true sentences save of the expected regret, in [-1, 1]; 0 if nobody has measured it."""
        raise NotImplementedError

    @property
    def model(self) -> float:
        """The reward model's opinion of the move, in [0, 1]."""
        raise NotImplementedError

    @property
    def custom(self) -> Mapping[str, float]:
        """The values of users' functions by name."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Term:
    """A named function of the evidence, with values in [`low`, `high`].

    `version` is increased whenever a value changes. `uses` is what must be known of an answer. `candidates`
    is how many of the moves that the reasoning names it looks at.
    """

    name: str
    version: int | str
    low: float
    high: float
    value: Callable[[Evidence], float]
    uses: Source = "regret"
    candidates: int = 0

    @property
    def judges_move(self) -> bool:
        """Whether it says how good the move is."""
        return self.uses in _OF_THE_MOVE


@dataclass(frozen=True)
class Scheme:
    """A weighted sum of terms. `text` is the scheme as the caller wrote it, without spaces."""

    text: str
    terms: tuple[tuple[float, Term], ...]

    @cached_property
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
        return sum(weight * term.low for weight, term in self.terms)

    @property
    def high(self) -> float:
        return sum(weight * term.high for weight, term in self.terms)

    @cached_property
    def uses(self) -> frozenset[Source]:
        """What must be known of an answer."""
        return frozenset(term.uses for _, term in self.terms)

    @cached_property
    def candidates(self) -> int:
        """How many of the moves that the reasoning names must be searched."""
        return max(term.candidates for _, term in self.terms)

    def components(self, evidence: Evidence) -> dict[str, float]:
        """The weighted terms of a legal move, by name. Their sum is the reward."""
        return {term.name: weight * term.value(evidence) for weight, term in self.terms}

    @cached_property
    def engine_terms(self) -> "Scheme | None":
        """The terms that the engine alone decides. They reward a move that the reasoning only names. None if
        none of them judges the move."""
        by_engine = tuple((weight, term) for weight, term in self.terms if term.uses in _BY_ENGINE)
        return Scheme(self.text, by_engine) if any(term.judges_move for _, term in by_engine) else None

    def penalty(self, outcome: Outcome) -> float:
        """The reward of an answer without a legal move."""
        return self.low - _SHORTFALL[outcome] * (self.high - self.low)


def _accuracy(evidence: Evidence) -> float:
    """Lichess's accuracy of a move, as a fraction (lila, `AccuracyPercent.scala`, with its bonus of 1). The
    bonus makes up for the noise of an analysis. In the formula, the loss is in percent."""
    if evidence.regret == 0.0:
        return 1.0
    percent = 103.1668100711649 * math.exp(-0.04354415386753951 * 100 * evidence.regret) - 3.166924740191411
    return max(0.0, min(100.0, percent + 1.0)) / 100


def _minmax(evidence: Evidence) -> float:
    """The place of the move between the worst legal move (0) and the best (1); 1 if all are equal."""
    span = evidence.win_best - evidence.win_worst
    return 1.0 if span <= 0.0 else 1.0 - min(1.0, evidence.regret / span)


_THOUGHT = re.compile(r"\s*+<think>\s*+[^<\s][^<]*+</think>[^<]*+")
_BOX = re.compile(r"\\boxed\s*\{")


def _format(evidence: Evidence) -> float:
    """1 for one `<think>` that is not empty, then text with one box, and no other `<`; else 0."""
    if _THOUGHT.fullmatch(with_think_tags(evidence.response)) is None:
        return 0.0
    return 1.0 if len(_BOX.findall(evidence.response)) == 1 else 0.0


def _mate(evidence: Evidence) -> float:
    """1/n if the move mates in n moves, by the engine's search of it; else 0.

    Win probabilities hardly show this: where every move wins, a missed mate costs nothing. There is no price
    for being mated, because it would lower the reward of illegal moves everywhere (`Scheme.penalty`).
    """
    mate = evidence.score.mate
    return 1 / mate if mate is not None and mate > 0 else 0.0


def _length(allowed: int, most: int | None) -> Term:
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), in characters: 0 up to `allowed`, then a
    line to -1 at `most`, by default twice as many, and -1 beyond.

    DAPO's L_max is `most`, and its L_cache is `most` less `allowed`. `length(0-1000)` is a price of 0.001 for
    each of the first thousand characters.
    """
    span = (most or 2 * allowed) - allowed

    def value(evidence: Evidence) -> float:
        return -min(1.0, max(0, len(evidence.response) - allowed) / span)

    name = f"length({allowed})" if most is None else f"length({allowed}-{most})"
    return Term(name, 1, low=-1.0, high=0.0, value=value, uses="response")


def _candidates(count: int) -> Term:
    """The share of the first `count` moves that are legal and different, times 1 less the best one's regret.

    Moves named later do not count, so a list of all moves is worth as much as its beginning. In a position
    with fewer legal moves, all of them are enough.
    """

    def value(evidence: Evidence) -> float:
        if not (wins := evidence.wins_named):
            return 0.0
        share = min(1.0, len(wins) / min(count, evidence.legal_moves))
        return share * (1.0 - max(0.0, evidence.win_best - max(wins)))

    name = f"candidates({count})"
    return Term(name, 2, low=0.0, high=1.0, value=value, uses="wins_named", candidates=count)


def _values(count: int) -> Term:
    """The sum of 1 less the error of the stated win probability, over the different legal moves among the
    first `count` that the reasoning names, divided by `count`, or by the number of legal moves if lower.

    Verifiable Process Supervision (arXiv 2605.12519) rewards stated evaluations; this form is our own.
    """

    def value(evidence: Evidence) -> float:
        return math.fsum(1.0 - error for error in evidence.stated_errors) / min(count, evidence.legal_moves)

    return Term(f"values({count})", 1, low=0.0, high=1.0, value=value, uses="stated_errors", candidates=count)


TERMS: Mapping[str, Term] = MappingProxyType(
    {
        term.name: term
        for term in (
            # Not -regret: the best move earns 0.0, never -0.0.
            Term("delta", 1, low=-1.0, high=0.0, value=lambda evidence: 0.0 - evidence.regret),
            Term("best", 2, low=0.0, high=1.0, value=lambda evidence: float(evidence.regret == 0.0)),
            Term("accuracy", 1, low=0.0, high=1.0, value=_accuracy),
            Term("minmax", 1, low=0.0, high=1.0, value=_minmax, uses="win_worst"),
            Term("model", 1, low=0.0, high=1.0, value=attrgetter("model"), uses="model"),
            Term("mate", 1, low=0.0, high=1.0, value=_mate, uses="score"),
            Term("format", 1, low=0.0, high=1.0, value=_format, uses="response"),
            Term("consistency", 1, low=0.0, high=1.0, value=attrgetter("consistency"), uses="consistency"),
            Term("truth", 1, low=-1.0, high=1.0, value=attrgetter("truth"), uses="truth"),
            Term("influence", 1, low=-1.0, high=1.0, value=attrgetter("influence"), uses="influence"),
        )
    }
)
"""The terms by name, except `length`, `candidates` and `values`, which take a number."""

_TERM = re.compile(r"(?:(\d+(?:\.\d+)?|\.\d+)\*)?([a-z][a-z0-9_]*)(?:\((\d{1,7})(?:-(\d{1,7}))?\))?")


@lru_cache(maxsize=256)
def find_scheme(text: str, custom: tuple[Term, ...] = ()) -> Scheme:
    """The scheme of `text`: a term, or a weighted sum such as `delta+0.1*format+0.2*length(2000)`.

    `custom` are the terms of users' functions. Raises `InvalidInput` if `text` is not a scheme, names a term
    twice, has no term that judges the move, or two that look at different numbers of moves.
    """
    if len(text) > MAX_SCHEME_CHARS:
        raise InvalidInput(f"a scheme cannot have {len(text)} characters: {text[:MAX_SCHEME_CHARS]!r}...")
    parts = "".join(text.split()).split("+")
    scheme = Scheme("+".join(parts), tuple(_read_term(part, text, custom) for part in parts))
    names = [term.name.partition("(")[0] for _, term in scheme.terms]
    if len(set(names)) < len(names):
        raise InvalidInput(f"scheme {text!r} names a term twice")
    if len({term.candidates for _, term in scheme.terms} - {0}) > 1:
        raise InvalidInput(f"scheme {text!r}: candidates(N) and values(N) must have the same N")
    if not any(term.judges_move for _, term in scheme.terms):
        raise InvalidInput(
            f"scheme {text!r} has no term that judges the move: add delta, best, accuracy, minmax or model"
        )
    return scheme


def _read_term(part: str, text: str, custom: tuple[Term, ...]) -> tuple[float, Term]:
    match = _TERM.fullmatch(part)
    if match is None:
        raise InvalidInput(f"no scheme {text!r}: {part!r} is not a term such as delta or 0.1*format")
    weight, name, number, end = float(match[1] or 1.0), match[2], match[3], match[4]
    if not 0 < weight <= 1000:
        raise InvalidInput(f"scheme {text!r}: weight {match[1]} is not in (0, 1000]")
    allowed, most = int(number or LENGTH_CHARS), int(end) if end else None
    if name == "length" and (allowed > 0 if most is None else allowed < most):
        return weight, _length(allowed, most)
    of_moves = {"candidates": _candidates, "values": _values}
    if name in of_moves and end is None and 1 <= (count := int(number or CANDIDATES)) <= MAX_CANDIDATES:
        return weight, of_moves[name](count)
    if name == "graded":
        raise InvalidInput(f"scheme {text!r}: graded judges tasks P and A, not moves")
    terms = {**TERMS, **{term.name: term for term in custom}}
    if name not in terms or number is not None:
        raise InvalidInput(
            f"no scheme {part!r}: choose from {', '.join(terms)}, length, length(N), "
            f"length(N-M) with N below M, candidates, values, "
            f"candidates(N) and values(N) for N up to {MAX_CANDIDATES}"
        )
    return weight, terms[name]
