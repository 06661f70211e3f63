"""One move with the boards before and after it, which the detectors of moves need together."""

from dataclasses import dataclass
from typing import Self

import chess


@dataclass(frozen=True, slots=True)
class Step:
    """A legal move of `mover`; `kind` is what moved, `arrived` what stands on its square afterwards."""

    before: chess.Board
    move: chess.Move
    after: chess.Board
    mover: chess.Color
    kind: chess.PieceType
    arrived: chess.PieceType

    @classmethod
    def of(cls, before: chess.Board, move: chess.Move) -> Self:
        """The step that `move` makes from `before`, which stays as it is."""
        after = before.copy(stack=False)
        after.push(move)
        kind = before.piece_type_at(move.from_square)
        if kind is None:
            raise ValueError(f"no piece moves with {move.uci()!r} in {before.fen()!r}")
        return cls(before, move, after, mover=before.turn, kind=kind, arrived=move.promotion or kind)

    @property
    def origin(self) -> chess.Square:
        return self.move.from_square

    @property
    def target(self) -> chess.Square:
        return self.move.to_square

    @property
    def victim(self) -> chess.Square | None:
        """The square of what was captured, on the board before."""
        if self.before.is_en_passant(self.move):
            return chess.square(chess.square_file(self.target), chess.square_rank(self.origin))
        return self.target if self.before.color_at(self.target) == (not self.mover) else None

    @property
    def castles(self) -> bool:
        return self.before.is_castling(self.move)

    def own(self, board: chess.Board) -> chess.Bitboard:
        """The mover's pieces on one of the two boards."""
        return board.occupied_co[self.mover]

    def enemy(self, board: chess.Board) -> chess.Bitboard:
        """The other side's pieces on one of the two boards."""
        return board.occupied_co[not self.mover]
