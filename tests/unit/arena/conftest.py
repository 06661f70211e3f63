"""Positions, and answers with verdicts written by hand."""

from collections.abc import Callable, Sequence

import chess
import pytest

from arena.answers import Answers, PlayerAnswer
from rookery.candidates import candidates_of
from rookery.trace import Move, Outcome, Phase, Position, Verdict

FENS = (
    chess.STARTING_FEN,
    "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2",
    "rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 1 2",
    "8/5k2/8/8/3K4/8/4P3/8 b - - 0 60",
)


def make_position(number: int, fen: str) -> Position:
    phase = Phase.ENDGAME if number == 3 else Phase.OPENING
    return Position(id=f"abc:{number}:4", fen=fen, ply=4, phase=phase, game_id=f"abc:{number}")


def make_answer(
    outcome: Outcome,
    *,
    regret: float = 0.0,
    text: str = "\\boxed{e2e4}",
    uci: str = "e2e4",
    best: str = "g1f3",
    wins: dict[str, float] | None = None,
) -> PlayerAnswer:
    legal = outcome is Outcome.LEGAL
    verdict = Verdict(
        reward=-regret if legal else -1.2,
        outcome=outcome,
        reward_version="delta-1",
        move=Move(uci, uci) if legal else None,
        best=Move(best, best) if legal else None,
        regret=regret if legal else None,
    )
    return PlayerAnswer(
        text, 5, verdict, candidates=tuple(candidates_of(text, chess.Board())), wins=wins or {}
    )


@pytest.fixture(scope="session")
def judged() -> Callable[..., PlayerAnswer]:
    """`judged(outcome, regret=, text=, uci=, best=, wins=)`: an answer with that verdict."""
    return make_answer


@pytest.fixture(scope="session")
def positions() -> list[Position]:
    return [make_position(number, fen) for number, fen in enumerate(FENS)]


@pytest.fixture
def answering(positions: list[Position]) -> Callable[[Sequence[Sequence[PlayerAnswer]]], list[Answers]]:
    """One player's answers on the mover's board: a row for each position, the first of them greedy."""

    def answers(rows: Sequence[Sequence[PlayerAnswer]]) -> list[Answers]:
        boards = [chess.Board(position.fen) for position in positions]
        return [
            Answers(position, (board if board.turn else board.mirror()).fen(), row[0], tuple(row[1:]))
            for position, board, row in zip(positions, boards, rows, strict=False)
        ]

    return answers
