"""Validates a FEN and turns it into the FEN that the engine searches.

Impossible positions are refused, because Stockfish could crash on them. If Black is to move, the engine gets
the mirrored board, so that a position and its mirror image have the same verdicts. Engines do not guarantee
this by themselves, because their move ordering depends on the numbering of the squares.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import chess

from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Move

MAX_FEN_CHARS = 128
"""The longest FEN that is read. The longest legal one has about 90 characters."""

DRAWN_CLOCK = 100
"""The half-move clock at which every engine scores a draw. The engine is given no larger one."""

PAWNS = 8
"""Pawns of each side at the start. No side can have more pawns and promoted pieces together."""


@dataclass(frozen=True, slots=True)
class LegalMove:
    """A legal move and, when it ends the game by the rules, its score: mate in 1, or 0 for a draw."""

    move: Move
    final_score: Evaluation | None


@dataclass(frozen=True, slots=True)
class Position:
    """A position that can be judged. `key` is the engine's FEN: White to move, move number 1."""

    board: chess.Board
    key: str
    _legal_moves: dict[chess.Move, LegalMove] = field(default_factory=dict)

    @property
    def chess960(self) -> bool:
        """Whether the castling rights exist only in Chess960. Castling is then king takes rook in UCI."""
        return self.board.chess960

    def legal_move(self, move: chess.Move) -> LegalMove:
        """`move` in UCI and SAN, and its score if it ends the game.

        The result is cached, because the answers of a group often repeat a move.

        Raises:
            chess.IllegalMoveError: the move is not legal here.
        """
        if (legal_move := self._legal_moves.get(move)) is None:
            if not self.board.is_legal(move):
                raise chess.IllegalMoveError(f"illegal move {move.uci()!r} in {self.board.fen()!r}")
            after = self.board.copy(stack=False)
            san = after.san_and_push(move)
            legal_move = self._legal_moves[move] = LegalMove(
                Move(uci=move.uci(), san=san), _final_score(after, san)
            )
        return legal_move

    def to_engine(self, move: chess.Move) -> str:
        """`move` in UCI on the engine's board."""
        return (move if self.board.turn else _mirrored(move)).uci()

    def from_engine(self, uci: str) -> chess.Move:
        """The move on the caller's board for `uci` on the engine's board."""
        move = chess.Move.from_uci(uci)
        return move if self.board.turn else _mirrored(move)


@lru_cache(maxsize=16_384)
def read_position(fen: str) -> Position:
    """The position of `fen`. It is Chess960 only if the castling rights are impossible in standard chess.

    Raises:
        InvalidInput: `fen` is not a FEN, or the position is impossible or has no legal move.
    """
    board = _board(fen)
    if not any(board.generate_legal_moves()):
        end = "checkmate" if board.is_check() else "stalemate"
        raise InvalidInput(f"no legal move in {fen!r}: {end}")
    return Position(board, _key(board, fen.split(maxsplit=1)[0]))


def _board(fen: str) -> chess.Board:
    if len(fen) > MAX_FEN_CHARS:
        raise InvalidInput(f"a FEN cannot have {len(fen)} characters: {fen[:MAX_FEN_CHARS]!r}...")
    if not fen.isascii():  # python-chess would read U+212A, the Kelvin sign, as a king
        raise InvalidInput(f"not a FEN: {fen!r}: characters beyond ASCII")
    try:
        board = _Board(fen)
    except ValueError as error:
        raise InvalidInput(f"not a FEN: {fen!r}: {error}") from error
    board.promoted = chess.BB_EMPTY  # python-chess finds no king, so no check, if it is marked "~"
    if flaws := _flaws(board):
        raise InvalidInput(f"impossible position {fen!r}: {', '.join(flaws)}")
    return board


class _Board(chess.Board):
    """A board that reads a valid piece placement in one pass.

    python-chess sets each piece by itself, which takes as long as everything else in this module together.
    """

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
    """The squares of each piece symbol, or None if `placement` is not valid; python-chess then says why."""
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
    """The reasons why `board` is impossible, if any. Sets `board.chess960` if its castling rights need it."""
    status = board.status()
    if status == chess.STATUS_BAD_CASTLING_RIGHTS:
        board.chess960 = True
        status = board.status() if _from_one_array(board) else status
    flaws = [flag.name.lower().replace("_", " ") for flag in status if flag.name] if status else []
    if any(_promotable(board, own) > PAWNS for own in board.occupied_co):
        flaws.append("too many promoted pieces")
    return flaws


def _promotable(board: chess.Board, own: chess.Bitboard) -> int:
    """The least number of the pieces `own` that are pawns or promoted pawns."""
    spare = max(0, chess.popcount(own & board.queens) - 1)
    for pieces in (board.rooks, board.bishops, board.knights):
        spare += max(0, chess.popcount(own & pieces) - 2)
    return spare + chess.popcount(own & board.pawns)


def _from_one_array(board: chess.Board) -> bool:
    """Whether one Chess960 starting position explains all castling rights: both sides on the same files."""
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
    """The engine's FEN. Mirroring the text `placement` is cheaper than writing out the mirrored board."""
    placement = placement.replace("~", "")
    if not board.turn:
        board = board.mirror()
        placement = "/".join(reversed(placement.swapcase().split("/")))
    castling = board.castling_shredder_fen() if board.chess960 else board.castling_xfen()
    en_passant = (
        chess.SQUARE_NAMES[board.ep_square] if board.ep_square and board.has_legal_en_passant() else "-"
    )
    return f"{placement} w {castling} {en_passant} {min(board.halfmove_clock, DRAWN_CLOCK)} 1"


def _final_score(after: chess.Board, san: str) -> Evaluation | None:
    if san.endswith("#"):
        return Evaluation(mate=1)
    over = after.is_insufficient_material() or after.is_seventyfive_moves()
    return Evaluation(cp=0) if over or not any(after.generate_legal_moves()) else None


def _mirrored(move: chess.Move) -> chess.Move:
    return chess.Move(
        chess.square_mirror(move.from_square), chess.square_mirror(move.to_square), move.promotion
    )
