"""Answers with a legal move: what their text names and claims, and what users' functions say of them.

Claims are read by `commentary.read`, which checks them with the rules of chess alone: no engine is asked, so
claims about scores stay open. What it cannot read is neither rewarded nor punished.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import islice

import chess

import commentary
from commentary import Reading
from commentary.concept import CONCEPTS
from rookery.answers import before_answer, reasoning_of
from rookery.errors import InvalidInput, PeerFault
from rookery.notation import named_moves, read_move
from rookery.schemes import Scheme
from rookery.trace import Claim, Sentence
from services.reward.position import LegalMove

READ_CHARS = 4000
"""Characters before the box that are read. The slowest text known takes a third of a second."""

HALF = 3.0
"""The weight of the true claims that earn half of what can be earned."""

FALSE_CLAIMS = 4
"""So many false claims cost everything: such a text is worth less than none, whatever else is in it.

A claim that is true as often as false earns nothing, even if it is the first one and has the full weight."""

GIVEN = frozenset(
    {"candidate", "candidates", "castling rights", "choice", "legal replies"}
    | {"own piece", "piece on a file", "side to move"}
    | {name for name, concept in CONCEPTS.items() if concept.topic == "given"}
)
"""Concepts that a FEN, a list of legal moves or the answer itself states. To repeat it earns nothing."""


def read_reasoning(fen: str, response: str, uci: str) -> commentary.Reading:
    """Reads what `response` says before its box about the position; `uci` is the move in the box.

    Raises:
        InvalidInput: the position is one of Chess960, which the reader does not know.
    """
    # The text may be cut, so the box is put back: it says which move the text chooses.
    text = before_answer(response)[:READ_CHARS]
    try:
        return commentary.read(fen, f"{text}\n\n\\boxed{{{uci}}}")
    except ValueError as error:
        raise InvalidInput(f"scheme truth cannot read about {fen!r}: {error}") from error


def truth_of(reading: commentary.Reading) -> float:
    """Truths / (truths + 3) - falsehoods / 4, at least -1; 0 for a text without claims.

    Equal claims count once. Truths are a sum of weights up to 1, halved for each further claim of the same
    concept, the heaviest first. Falsehoods are a number.
    """
    weights: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for claim in reading.claims:
        if claim.true and claim.concept not in GIVEN:
            weights[claim.concept][claim.key] = min(1.0, claim.weight)
    truths = sum(
        weight * 0.5**repeated
        for by_key in weights.values()
        for repeated, weight in enumerate(sorted(by_key.values(), reverse=True))
    )
    falsehoods = len({claim.key for claim in reading.false})
    return max(-1.0, truths / (truths + HALF) - falsehoods / FALSE_CLAIMS)


def sentences_of(reading: commentary.Reading) -> tuple[Sentence, ...]:
    """The sentences as a verdict lists them."""
    return tuple(
        Sentence(
            sentence.start,
            sentence.end,
            sentence.status not in ("partly", "unread"),
            tuple(Claim(claim.concept, claim.start, claim.end, claim.true) for claim in sentence.claims),
        )
        for sentence in reading.sentences
    )


@cache
def reader_id() -> str:
    """The reader's part of `reward_version`: a hash of its source, because each concept changes rewards."""
    digest = hashlib.sha256()
    package = files(commentary)
    modules = [*package.iterdir(), *(package / "concepts").iterdir()]
    for module in sorted(modules, key=str):
        if module.name.endswith(".py"):
            digest.update(module.read_bytes())
    return f"commentary-{digest.hexdigest()[:12]}"


REASONING_CHARS = 10_000
"""Characters of the reasoning in which candidates are looked for, so that a long text does not take long."""


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """An answer with a legal move: the move, the full text and the scheme that turns it into a reward.

    `candidates` are the different legal moves among those that the scheme looks at in the reasoning.
    `reading` is what the reasoning says about the board, if the scheme needs it. `custom` has the values of
    users' functions.
    """

    legal_move: LegalMove
    move: chess.Move
    response: str
    scheme: Scheme
    reward_version: str
    candidates: tuple[chess.Move, ...] = ()
    reading: Reading | None = None
    custom: Mapping[str, float] = field(default_factory=dict)


def legal_candidates(response: str, board: chess.Board, *, most: int) -> tuple[chess.Move, ...]:
    """The different legal moves among the first `most` that the reasoning names."""
    if not most:
        return ()
    named = islice(named_moves(reasoning_of(response)[:REASONING_CHARS], board), most)
    moves = [read_move(text, board).move for text in named]
    return tuple(dict.fromkeys(move for move in moves if move is not None))


def with_reading(answer: MoveAnswer, fen: str) -> MoveAnswer | InvalidInput:
    """The answer with its reasoning read, which may take a second: not for the event loop."""
    try:
        return replace(answer, reading=read_reasoning(fen, answer.response, answer.move.uci()))
    except InvalidInput as error:
        return error


async def with_custom(answers: Mapping[int, MoveAnswer], fen: str) -> dict[int, MoveAnswer | PeerFault]:
    """The answers to a position with the values of the users' functions that their schemes have."""
    results: dict[int, MoveAnswer | PeerFault] = dict(answers)
    for term in {term for answer in answers.values() for _, term in answer.scheme.terms}:
        if term.ask is None:
            continue
        asked = {
            number: answer
            for number, answer in results.items()
            if isinstance(answer, MoveAnswer) and any(own is term for _, own in answer.scheme.terms)
        }
        try:
            moves = [answer.move.uci() for answer in asked.values()]
            values = await term.ask(fen, [answer.response for answer in asked.values()], moves)
        except PeerFault as fault:
            results |= dict.fromkeys(asked, fault)
        else:
            for (number, answer), value in zip(asked.items(), values, strict=True):
                results[number] = replace(answer, custom={**answer.custom, term.name: value})
    return results
