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


OPENINGS = (
    "",
    "e4",
    "d4",
    "c4",
    "Nf3",
    "e4 e5",
    "e4 c5",
    "d4 d5",
    "d4 Nf6",
    "e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7 Re1 b5 Bb3 d6 c3 O-O",
    "e4 e5 Nf3 Nc6 Bb5 Nf6 O-O Nxe4",
    "e4 e5 Nf3 Nc6 Bb5 a6 Bxc6 dxc6",
    "e4 e5 Nf3 Nc6 Bc4 Bc5 c3 Nf6 d3 d6",
    "e4 e5 Nf3 Nc6 Bc4 Nf6 Ng5 d5 exd5 Na5",
    "e4 e5 Nf3 Nc6 Bc4 Bc5 b4 Bxb4 c3 Ba5",
    "e4 e5 Nf3 Nc6 d4 exd4 Nxd4 Nf6 Nc3 Bb4",
    "e4 e5 Nf3 Nc6 Nc3 Nf6 Bb5 Bb4",
    "e4 e5 Nf3 Nf6 Nxe5 d6 Nf3 Nxe4 d4 d5",
    "e4 e5 Nf3 d6 d4 exd4 Nxd4 Nf6 Nc3 Be7",
    "e4 e5 f4 exf4 Nf3 g5 h4 g4 Ne5",
    "e4 e5 Nc3 Nf6 f4 d5 fxe5 Nxe4",
    "e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 a6 Bg5 e6 f4 Be7",
    "e4 c5 Nf3 d6 d4 cxd4 Nxd4 Nf6 Nc3 g6 Be3 Bg7 f3 O-O Qd2 Nc6",
    "e4 c5 Nf3 Nc6 d4 cxd4 Nxd4 Nf6 Nc3 e5 Ndb5 d6",
    "e4 c5 Nf3 e6 d4 cxd4 Nxd4 Nc6 Nc3 Qc7",
    "e4 c5 Nf3 Nc6 Bb5 g6 O-O Bg7 Re1 e5",
    "e4 c5 c3 d5 exd5 Qxd5 d4 Nf6 Nf3 e6",
    "e4 c5 Nc3 Nc6 g3 g6 Bg2 Bg7 d3 d6",
    "e4 e6 d4 d5 Nc3 Nf6 Bg5 Be7 e5 Nfd7",
    "e4 e6 d4 d5 e5 c5 c3 Nc6 Nf3 Qb6",
    "e4 e6 d4 d5 Nc3 Bb4 e5 c5 a3 Bxc3+ bxc3 Ne7",
    "e4 e6 d4 d5 Nd2 Nf6 e5 Nfd7 Bd3 c5 c3 Nc6",
    "e4 c6 d4 d5 Nc3 dxe4 Nxe4 Bf5 Ng3 Bg6 h4 h6",
    "e4 c6 d4 d5 e5 Bf5 Nf3 e6 Be2 c5",
    "e4 c6 d4 d5 exd5 cxd5 c4 Nf6 Nc3 e6",
    "e4 d5 exd5 Qxd5 Nc3 Qa5 d4 Nf6 Nf3 c6",
    "e4 d6 d4 Nf6 Nc3 g6 f4 Bg7 Nf3 O-O",
    "e4 Nf6 e5 Nd5 d4 d6 Nf3 Bg4",
    "e4 g6 d4 Bg7 Nc3 d6 Be3 a6",
    "d4 d5 c4 e6 Nc3 Nf6 Bg5 Be7 e3 O-O Nf3 h6 Bh4 b6",
    "d4 d5 c4 e6 Nc3 Nf6 cxd5 exd5 Bg5 c6 e3 Be7",
    "d4 d5 c4 c6 Nf3 Nf6 Nc3 dxc4 a4 Bf5",
    "d4 d5 c4 c6 Nf3 Nf6 Nc3 e6 e3 Nbd7 Bd3 dxc4 Bxc4 b5",
    "d4 d5 c4 dxc4 Nf3 Nf6 e3 e6 Bxc4 c5 O-O a6",
    "d4 d5 c4 e5 dxe5 d4 Nf3 Nc6",
    "d4 d5 Nf3 Nf6 Bf4 e6 e3 c5 c3 Nc6",
    "d4 Nf6 c4 e6 Nc3 Bb4 e3 O-O Bd3 d5 Nf3 c5",
    "d4 Nf6 c4 e6 Nf3 b6 g3 Bb7 Bg2 Be7 O-O O-O",
    "d4 Nf6 c4 e6 g3 d5 Bg2 Be7 Nf3 O-O O-O dxc4",
    "d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 Nf3 O-O Be2 e5 O-O Nc6 d5 Ne7",
    "d4 Nf6 c4 g6 Nc3 Bg7 e4 d6 f3 O-O Be3 e5",
    "d4 Nf6 c4 g6 Nc3 d5 cxd5 Nxd5 e4 Nxc3 bxc3 Bg7",
    "d4 Nf6 c4 c5 d5 e6 Nc3 exd5 cxd5 d6 e4 g6",
    "d4 Nf6 c4 c5 d5 b5 cxb5 a6 bxa6 Bxa6",
    "d4 Nf6 Bg5 Ne4 Bf4 d5",
    "d4 f5 g3 Nf6 Bg2 g6 Nf3 Bg7 O-O O-O c4 d6",
    "d4 f5 c4 Nf6 g3 e6 Bg2 Be7 Nf3 O-O",
    "c4 e5 Nc3 Nf6 Nf3 Nc6 g3 d5 cxd5 Nxd5",
    "c4 c5 Nf3 Nf6 Nc3 Nc6 g3 g6 Bg2 Bg7",
    "c4 Nf6 Nc3 g6 g3 Bg7 Bg2 O-O e4 d6",
    "Nf3 d5 g3 Nf6 Bg2 c6 O-O Bg4 d3 Nbd7",
    "Nf3 d5 c4 d4 e3 Nc6 exd4 Nxd4",
    "b3 e5 Bb2 Nc6 e3 d5 Bb5 Bd6",
    "f4 d5 Nf3 g6 e3 Bg7 Be2 Nf6",
)
"""Moves in SAN: from none at all (the initial position) to about eight moves of theory."""


@dataclass(frozen=True, slots=True)
class PositionGenerator:
    """An endless, numbered supply of positions."""

    seed: int = 0
    shares: Shares = field(default_factory=Shares)
    openings: Sequence[str] = OPENINGS
    least_moves: int = 1

    def position(self, number: int) -> Position:
        """Position number `number`.

        Raises:
            SetupError: no walk from the openings led to a position of its phase.
        """
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
