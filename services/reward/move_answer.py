"""Answers with a legal move: the moves and claims in their text, and the values of users' functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import chess

from commentary import Reading
from rookery.answers import before_answer
from rookery.errors import InvalidInput, PeerFault
from rookery.notation import named_moves, read_move
from rookery.schemes import Scheme
from services.reward.position import LegalMove
from services.reward.truth import read_reasoning

REASONING_CHARS = 10_000
"""Characters of the reasoning in which candidates are looked for, so that a long text does not take long."""


@dataclass(frozen=True, slots=True)
class ReadMove:
    """A move that the reasoning names, at `response[start:end]`. `move` is None if it is illegal."""

    move: chess.Move | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """An answer with a legal move: the move, the full text and the scheme that turns it into a reward.

    `named` are the moves that the scheme looks at in the reasoning, `candidates` the different legal ones.
    `reading` is what the reasoning says about the board, if the scheme needs it. `custom` has the values of
    users' functions.
    """

    legal_move: LegalMove
    move: chess.Move
    response: str
    scheme: Scheme
    reward_version: str
    named: tuple[ReadMove, ...] = ()
    candidates: tuple[chess.Move, ...] = ()
    reading: Reading | None = None
    custom: Mapping[str, float] = field(default_factory=dict)


def read_moves(response: str, board: chess.Board, *, most: int) -> tuple[ReadMove, ...]:
    """The first `most` moves that the reasoning names."""
    if not most:
        return ()
    mentions = islice(named_moves(before_answer(response)[:REASONING_CHARS], board), most)
    return tuple(ReadMove(read_move(m.uci, board).move, m.start, m.end) for m in mentions)


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
        concerned = {
            number: answer
            for number, answer in results.items()
            if isinstance(answer, MoveAnswer) and any(needed is term for _, needed in answer.scheme.terms)
        }
        try:
            moves = [answer.move.uci() for answer in concerned.values()]
            values = await term.ask(fen, [answer.response for answer in concerned.values()], moves)
        except PeerFault as fault:
            results |= dict.fromkeys(concerned, fault)
        else:
            for (number, answer), value in zip(concerned.items(), values, strict=True):
                results[number] = replace(answer, custom={**answer.custom, term.name: value})
    return results
