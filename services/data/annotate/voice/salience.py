"""How much a fact matters in a position, for choosing what to speak of first.

Numbers are a player's sense of proportion, nothing more: they decide what is said, never whether it is true.
"""

from collections.abc import Callable
from typing import Any

import chess

from services.data.annotate.case import Case
from services.data.annotate.exchange import worth
from services.data.annotate.facts import Fact
from services.data.annotate.facts import files as file_facts
from services.data.annotate.facts import kings as king_facts
from services.data.annotate.facts import material as material_facts
from services.data.annotate.facts import mates as mate_facts
from services.data.annotate.facts import pawns as pawn_facts
from services.data.annotate.facts import pieces as piece_facts
from services.data.annotate.facts import tactics as tactic_facts

_TOUCHED = 1.4
"""What a fact gains when the best line runs over its squares."""

_LINE_PLIES = 5

Weight = float | Callable[[chess.Board, Any], float]


def _balance(board: chess.Board, fact: material_facts.Balance) -> float:
    return 2.2 if fact.points == 0 else 4.5 + min(3, abs(fact.points)) * 0.5


def _loose(board: chess.Board, fact: tactic_facts.Loose) -> float:
    value = worth(board, fact.square)
    return (3.0 if value > 1 else 1.6) + 0.5 * value


def _pressed(board: chess.Board, fact: tactic_facts.Pressed) -> float:
    value = worth(board, fact.square)
    cheapest = min(worth(board, square) for square in fact.attackers)
    return 1.0 + 0.4 * value + (1.0 if cheapest < value else 0.0)


def _pin(board: chess.Board, fact: tactic_facts.Pin) -> float:
    weight = 1.5 if worth(board, fact.pinned) == 1 else 4.2
    return weight + (0.8 if board.piece_type_at(fact.behind) == chess.KING else 0.0)


def _passed(board: chess.Board, fact: pawn_facts.Passed) -> float:
    return (
        2.2
        + max(0, 4 - fact.steps) * 1.1
        + (1.0 if not board.queens else 0.0)
        + (0.7 if fact.protected else 0)
    )


def _half_open(board: chess.Board, fact: file_facts.HalfOpen) -> float:
    press = any(board.attacks_mask(piece) & chess.BB_SQUARES[fact.target] for piece in fact.heavy)
    return 2.0 if press else 0.5


def _central(board: chess.Board, fact: king_facts.Central) -> float:
    late = min(1.5, board.ply() / 30)
    stuck = 0 if fact.kingside or fact.queenside else 1.2
    return (0.7 + late + stuck) if board.queens else 0.5


def _at_home(board: chess.Board, fact: piece_facts.AtHome) -> float:
    return 0.8 + 0.25 * len(fact.pieces) + (1.2 if len(fact.pieces) > fact.others else 0.0)


_WEIGHTS: dict[type[Fact], Weight] = {
    mate_facts.MateNow: 100.0,
    mate_facts.MateThreat: 60.0,
    king_facts.Checked: 40.0,
    material_facts.Balance: _balance,
    material_facts.BishopPair: 2.3,
    material_facts.OppositeBishops: lambda board, fact: 4.0 if fact.pure else 1.8,
    material_facts.Ending: 4.2,
    material_facts.QueensOff: 1.4,
    pawn_facts.Passed: _passed,
    pawn_facts.Connected: 4.5,
    pawn_facts.Isolated: lambda board, fact: 2.2 if fact.open else 1.7,
    pawn_facts.Doubled: 1.6,
    pawn_facts.Backward: 1.6,
    pawn_facts.Majority: lambda board, fact: 0.6 if board.queens else 1.9,
    pawn_facts.Centre: 2.2,
    pawn_facts.Rams: 1.0,
    file_facts.OpenFile: lambda board, fact: 2.3 if bool(fact.white) != bool(fact.black) else 1.5,
    file_facts.HalfOpen: _half_open,
    file_facts.Seventh: 3.4,
    file_facts.Doubled: 2.3,
    king_facts.Sheltered: 1.1,
    king_facts.Bare: lambda board, fact: 3.4 if board.pieces_mask(chess.QUEEN, not fact.side) else 1.0,
    king_facts.Central: _central,
    king_facts.Line: lambda board, fact: (
        (2.9 if fact.heavy else 1.5) if fact.open else 1.6 if fact.heavy else 0.4
    ),
    king_facts.Besieged: lambda board, fact: 1.6 + 0.6 * len(fact.attackers),
    king_facts.BackRank: 2.4,
    king_facts.Active: 2.0,
    king_facts.Opposition: 3.2,
    piece_facts.Outpost: 2.7,
    piece_facts.AtHome: _at_home,
    piece_facts.BadBishop: 1.8,
    piece_facts.Immobile: 2.2,
    tactic_facts.Loose: _loose,
    tactic_facts.Pressed: _pressed,
    tactic_facts.Pin: _pin,
    tactic_facts.Skewer: 4.4,
    tactic_facts.Fork: 4.6,
    tactic_facts.Overloaded: 3.8,
    tactic_facts.Discovery: 3.4,
}

_TOPICS: dict[str, str] = {
    "material": "material",
    "pawns": "pawns",
    "files": "files",
    "kings": "kings",
    "pieces": "pieces",
    "tactics": "contacts",
    "mates": "kings",
}


def topic(fact: Fact) -> str:
    """The subject a fact belongs to."""
    return _TOPICS[type(fact).__module__.rsplit(".", 1)[1]]


def weigh(fact: Fact, case: Case) -> float:
    """How much a fact matters here."""
    weight = _WEIGHTS[type(fact)]
    base = weight(case.board, fact) if callable(weight) else weight
    return base + (_TOUCHED if set(fact.squares) & _line_squares(case) else 0.0)


def _line_squares(case: Case) -> set[chess.Square]:
    moves = case.best.full.moves[:_LINE_PLIES]
    return {square for move in moves for square in (move.from_square, move.to_square)}
