"""A FEN, validated and turned into the question an engine may be asked.

Stockfish is never fed a position it could choke on. It is also never shown Black to move: the board
is mirrored first, so that a position and its mirror image are one question with one answer, which no
engine promises by itself (its move ordering depends on the numbering of the squares).
"""

from dataclasses import dataclass, field
from functools import lru_cache

import chess

from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Move

MAX_FEN_CHARS = 128
"""The longest legal FEN has about 90."""

DRAWN_CLOCK = 100
"""Half-moves without progress after which every engine scores a draw; larger clocks say no more."""

PAWNS = 8
"""Of each side at the start: no side has more pawns and promoted pieces together."""


@dataclass(frozen=True, slots=True)
class Play:
    """A legal move and, when it ends the game by the rules, its score: mate in 1, or 0 for a draw."""

    move: Move
    settled: Evaluation | None


@dataclass(frozen=True, slots=True)
class Position:
    """A board that may be scored. `key` is its engine FEN: White to move, no move number."""

    board: chess.Board
    key: str
    _plays: dict[chess.Move, Play] = field(default_factory=dict)

    @property
    def chess960(self) -> bool:
        """Whether its castling rights exist in Chess960 only; then castling is king takes rook in UCI."""
        return self.board.chess960

    def play(self, move: chess.Move) -> Play:
        """What `move` is and whether it ends the game. Asked again and again for the moves of a group.

        Raises:
            chess.IllegalMoveError: it is not legal here.
        """
        if (play := self._plays.get(move)) is None:
            if not self.board.is_legal(move):
                raise chess.IllegalMoveError(f"illegal move {move.uci()!r} in {self.board.fen()!r}")
            after = self.board.copy(stack=False)
            san = after.san_and_push(move)
            play = self._plays[move] = Play(Move(uci=move.uci(), san=san), _settled(after, san))
        return play

    def to_engine(self, move: chess.Move) -> str:
        """`move` in UCI on the engine's board."""
        return (move if self.board.turn else _mirrored(move)).uci()

    def from_engine(self, uci: str) -> chess.Move:
        """The caller's move for the engine's `uci`."""
        move = chess.Move.from_uci(uci)
        return move if self.board.turn else _mirrored(move)


@lru_cache(maxsize=16_384)
def read_position(fen: str) -> Position:
    """The position of `fen`, of standard chess or, where only that explains its castling rights, Chess960.

    Raises:
        InvalidInput: no FEN, an impossible position, or one without legal moves.
    """
    board = _board(fen)
    if not any(board.generate_legal_moves()):
        end = "checkmate" if board.is_check() else "stalemate"
        raise InvalidInput(f"no legal move in {fen!r}: {end}")
    return Position(board, _key(board, fen.split(maxsplit=1)[0]))


def _board(fen: str) -> chess.Board:
    if len(fen) > MAX_FEN_CHARS:
        raise InvalidInput(f"no FEN is {len(fen)} characters long: {fen[:MAX_FEN_CHARS]!r}...")
    if not fen.isascii():  # python-chess would take U+212A, the Kelvin sign, for a king
        raise InvalidInput(f"not a FEN: {fen!r}: characters beyond ASCII")
    try:
        board = _Board(fen)
    except ValueError as error:
        raise InvalidInput(f"not a FEN: {fen!r}: {error}") from error
    board.promoted = chess.BB_EMPTY  # or a king marked "~" would be exempt from check
    if flaws := _flaws(board):
        raise InvalidInput(f"impossible position {fen!r}: {', '.join(flaws)}")
    return board


class _Board(chess.Board):
    """Reads a sound placement in one pass: piece by piece, python-chess takes as long as all else here."""

    def _set_board_fen(self, fen: str) -> None:
        pieces = _bitboards(fen)
        if pieces is None:
            super()._set_board_fen(fen)
            return
        white, black = 0, 0
        for symbol, squares in pieces.items():
            if symbol.isupper():
                white |= squares
            else:
                black |= squares
        self.pawns = pieces["P"] | pieces["p"]
        self.knights = pieces["N"] | pieces["n"]
        self.bishops = pieces["B"] | pieces["b"]
        self.rooks = pieces["R"] | pieces["r"]
        self.queens = pieces["Q"] | pieces["q"]
        self.kings = pieces["K"] | pieces["k"]
        self.promoted = chess.BB_EMPTY
        self.occupied_co = [black, white]
        self.occupied = black | white


def _bitboards(placement: str) -> dict[str, chess.Bitboard] | None:
    """The squares of each piece symbol; None where python-chess should say what is wrong."""
    ranks = placement.split("/")
    if len(ranks) != len(chess.RANK_NAMES):
        return None
    pieces = dict.fromkeys("PNBRQKpnbrqk", chess.BB_EMPTY)
    square = chess.BB_A8
    for rank in ranks:
        end, gap = square << 8, False
        for symbol in rank:
            if symbol in pieces:
                pieces[symbol] |= square
                square, gap = square << 1, False
            elif "1" <= symbol <= "8" and not gap:
                square, gap = square << int(symbol), True
            else:
                return None
        if square != end:
            return None
        square >>= 16
    return pieces


def _flaws(board: chess.Board) -> list[str]:
    """Why no game can come to `board`, which becomes one of Chess960 where that is the reason."""
    status = board.status()
    if status == chess.STATUS_BAD_CASTLING_RIGHTS:
        board.chess960 = True
        status = board.status() if _from_one_array(board) else status
    flaws = [flag.name.lower().replace("_", " ") for flag in status if flag.name] if status else []
    if any(_promotable(board, own) > PAWNS for own in board.occupied_co):
        flaws.append("too many promoted pieces")
    return flaws


def _promotable(board: chess.Board, own: chess.Bitboard) -> int:
    """How many of the men `own` are pawns, or were."""
    spare = max(0, chess.popcount(own & board.queens) - 1)
    for pieces in (board.rooks, board.bishops, board.knights):
        spare += max(0, chess.popcount(own & pieces) - 2)
    return spare + chess.popcount(own & board.pawns)


def _from_one_array(board: chess.Board) -> bool:
    """Whether one game of Chess960 can have begun with these castling rights: on the same files for both."""
    white = board.castling_rights & chess.BB_RANK_1
    black = (board.castling_rights & chess.BB_RANK_8) >> 56
    if not white or not black:
        return True
    king, other = board.king(chess.WHITE), board.king(chess.BLACK)
    if king is None or other != chess.square_mirror(king):
        return False
    queenside = (white | black) & (chess.BB_SQUARES[king] - 1)
    kingside = (white | black) & ~queenside
    return chess.popcount(queenside) <= 1 and chess.popcount(kingside) <= 1


def _key(board: chess.Board, placement: str) -> str:
    """The engine FEN. `placement`, the text just read, is cheaper to turn around than the board to spell."""
    placement = placement.replace("~", "")
    if not board.turn:
        board = board.mirror()
        placement = "/".join(reversed(placement.swapcase().split("/")))
    castling = board.castling_shredder_fen() if board.chess960 else board.castling_xfen()
    en_passant = (
        chess.SQUARE_NAMES[board.ep_square] if board.ep_square and board.has_legal_en_passant() else "-"
    )
    return f"{placement} w {castling} {en_passant} {min(board.halfmove_clock, DRAWN_CLOCK)} 1"


def _settled(after: chess.Board, san: str) -> Evaluation | None:
    if san.endswith("#"):
        return Evaluation(mate=1)
    over = after.is_insufficient_material() or after.is_seventyfive_moves()
    return Evaluation(cp=0) if over or not any(after.generate_legal_moves()) else None


def _mirrored(move: chess.Move) -> chess.Move:
    return chess.Move(
        chess.square_mirror(move.from_square), chess.square_mirror(move.to_square), move.promotion
    )
