"""Positions, and answers with verdicts written by hand."""

from collections.abc import Callable, Sequence

import chess
import pytest

from rookery.prompt import render
from rookery.trace import Completion, Move, Outcome, Phase, Position, Trace, Verdict
from services.arena.measures import Answers

FENS = (
    chess.STARTING_FEN,
    "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2",
    "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 1 2",
    "8/5k2/8/8/3K4/8/4P3/8 b - - 0 60",
)


def make_position(number: int, fen: str) -> Position:
    phase = Phase.ENDGAME if number == 3 else Phase.OPENING
    return Position(id=f"abc:{number}:4", fen=fen, ply=4, phase=phase, game_id=f"abc:{number}")


def make_trace(outcome: Outcome, *, regret: float = 0.0, text: str = "\\boxed{e2e4}") -> Trace:
    legal = outcome is Outcome.LEGAL
    move = Move("e2e4", "e4") if legal else None
    verdict = Verdict(
        reward=-regret if legal else -1.2,
        outcome=outcome,
        reward_version="delta-1",
        move=move,
        best=Move("g1f3", "Nf3"),
        regret=regret if legal else None,
    )
    return Trace("t", Completion(text, (1,), (0.0,), "stop", 7), verdict)


@pytest.fixture(scope="session")
def judged() -> Callable[..., Trace]:
    """`judged(outcome, regret=, text=)`: a trace with that verdict."""
    return make_trace


@pytest.fixture(scope="session")
def positions() -> list[Position]:
    return [make_position(number, fen) for number, fen in enumerate(FENS)]


@pytest.fixture
def answering(positions: list[Position]) -> Callable[[Sequence[Sequence[Trace]]], list[Answers]]:
    """One policy's answers: a row of traces for each position, the first of them greedy."""

    def answers(rows: Sequence[Sequence[Trace]]) -> list[Answers]:
        return [
            Answers(position, render(position, style="mover-squares"), row[0], tuple(row[1:]))
            for position, row in zip(positions, rows, strict=False)
        ]

    return answers
