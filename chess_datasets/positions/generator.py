"""Generates positions without games: openings from a list, and seeded random walks from them.

The recipe is RookWorld's: a fifth openings; three fifths middlegames, after 8 to 20 moves of each side that
favour the centre and development; a fifth endgames with fewer than 14 men. Every position is reached by
legal moves and has at least one. Position number i depends only on the seed and i.

The walks use no engine. They prefer moves after which the moved piece cannot be captured at a loss, because
otherwise one side would already be winning in most positions.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import chess

from chess_datasets.pgn.games import phase_of
from chess_datasets.positions.recipe import Shares
from rookery.errors import InvalidInput, SetupError
from rookery.trace import Phase, Position

ENDGAME_MEN = 14
"""An endgame has fewer men than this, kings and pawns included."""

WALK_MOVES = (8, 20)
"""The range of moves of each side between an opening and its middlegame."""

CENTRE = 2.0
DEVELOPMENT = 1.5
CAPTURE = 3.0
BLUNDER = 0.05
"""Weights of a move. Those that apply are multiplied. `CAPTURE` applies only on the way to an endgame."""

_VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 100}
_CENTRE = chess.SquareSet(chess.BB_CENTER)
_MAX_PLIES = 400
_TRIES = 200

OPENINGS = tuple(Path(__file__).with_name("openings.txt").read_text().splitlines())
"""Moves in SAN: from none at all (the initial position) to about eight moves of theory."""


@dataclass(frozen=True, slots=True)
class PositionGenerator:
    """An endless, numbered supply of positions."""

    seed: int = 0
    shares: Shares = field(default_factory=Shares)
    openings: Sequence[str] = OPENINGS
    least_moves: int = 1

    def position(self, number: int) -> Position:
        """Position number `number`. Raises `SetupError` if no walk from the openings led to a position of its
        phase."""
        rng = random.Random(f"{self.seed}:{number}")
        phase = self.shares.draw(rng)
        for _ in range(_TRIES):
            board = self._random_board(phase, rng)
            if board is not None:
                return _position(f"generated:{self.seed}:{number}", board, phase)
        raise SetupError(f"no {phase} in {_TRIES} walks from {len(self.openings)} openings")

    def _random_board(self, phase: Phase, rng: random.Random) -> chess.Board | None:
        """A board of that phase, or None if the walk ended in another phase or the game is over."""
        board = opening_board(self.openings[_random_below(len(self.openings), rng)])
        if phase is Phase.OPENING:
            _walk(board, _random_below(5, rng), rng)
        else:
            least, most = WALK_MOVES
            _walk(board, 2 * (least + _random_below(most - least + 1, rng)) - _random_below(2, rng), rng)
        if phase is Phase.ENDGAME:
            _trade(board, rng)
        fits = phase_of(board) is phase and board.outcome() is None
        return board if fits and board.legal_moves.count() >= self.least_moves else None


def _walk(board: chess.Board, plies: int, rng: random.Random) -> None:
    for _ in range(plies):
        if not _step(board, rng, capture=1.0):
            return


def _trade(board: chess.Board, rng: random.Random) -> None:
    """Walks until an endgame is reached, and a few moves further."""
    while board.occupied.bit_count() >= ENDGAME_MEN or phase_of(board) is not Phase.ENDGAME:
        if board.ply() > _MAX_PLIES or not _step(board, rng, capture=CAPTURE):
            return
    _walk(board, _random_below(21, rng), rng)


def _step(board: chess.Board, rng: random.Random, *, capture: float) -> bool:
    """Plays a random legal move, drawn by weight, and returns whether there was one."""
    moves = list(board.legal_moves)
    weights = [_weight(board, move, capture) for move in moves]
    point = rng.random() * sum(weights)
    for move, weight in zip(moves, weights, strict=True):
        point -= weight
        if point < 0:
            board.push(move)
            return True
    return False


def _weight(board: chess.Board, move: chess.Move, capture: float) -> float:
    weight = CENTRE if move.to_square in _CENTRE else 1.0
    home = chess.BB_RANK_1 if board.turn else chess.BB_RANK_8
    minors = (board.knights | board.bishops) & home
    if minors & chess.BB_SQUARES[move.from_square] or board.is_castling(move):
        weight *= DEVELOPMENT
    if board.is_capture(move):
        weight *= capture
    return weight * BLUNDER if _hangs(board, move) else weight


def _hangs(board: chess.Board, move: chess.Move) -> bool:
    """Whether the moved piece could be captured at a loss, by a rough count."""
    attackers = board.attackers(not board.turn, move.to_square)
    if not attackers:
        return False
    stake = _value(board, move.from_square) - _value(board, move.to_square)
    if stake <= 0:
        return False
    defenders = board.attackers(board.turn, move.to_square)
    defenders.discard(move.from_square)
    return not defenders or min(_value(board, square) for square in attackers) < stake


def _value(board: chess.Board, square: chess.Square) -> int:
    kind = board.piece_type_at(square)
    return _VALUES[kind] if kind else 0


def _random_below(limit: int, rng: random.Random) -> int:
    return int(rng.random() * limit)


def _position(name: str, board: chess.Board, phase: Phase) -> Position:
    moves = [move.uci() for move in board.move_stack]
    return Position(
        id=name,
        fen=board.fen(),
        ply=board.ply(),
        phase=phase,
        game_id=hashlib.sha256(" ".join(moves).encode()).hexdigest()[:16],
        last_moves=tuple(moves),
    )


@cache
def _replayed(opening: str) -> chess.Board:
    board = chess.Board()
    try:
        for san in opening.split():
            board.push_san(san)
    except ValueError as error:
        raise InvalidInput(f"not an opening: {opening!r}: {error}") from error
    return board


def opening_board(opening: str) -> chess.Board:
    """The board after `opening`.

    >>> opening_board("e4 e5").fen()
    'rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2'

    Raises:
        InvalidInput: a move is illegal.
    """
    return _replayed(opening).copy()
