"""A game of chess in progress: its moves, and when and how it ends.

The arena's matches, the games of rollouts and the viewer's Play make their moves here. Who is asked for a
move, how often, and what is stored of a turn is theirs.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import chess

from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Phase, Position

ILLEGAL_MOVE, PLY_LIMIT, ADJUDICATION = "illegal_move", "ply_limit", "adjudication"
"""Terminations beside those of the rules, which have python-chess's names in lower case."""

SCORES = {"1-0": 1.0, "1/2-1/2": 0.5, "0-1": 0.0}
"""White's score of each result."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What applies to every game of a tournament.

    Attributes:
        illegal: what happens after an answer without a legal move: `forfeit` loses the game; `retry:K` asks
            again, up to K times in a turn, then forfeits; `random` plays a random legal move instead.
        max_plies: the game ends after this many moves of both sides, the opening's included.
        limit_cp: if there is a referee, a side that then leads by this many centipawns has won. Otherwise,
            and without this number, the game is a draw.
        claim_draws: end the game at a threefold repetition and after fifty moves without a capture or pawn
            move. Without it, it ends at the fivefold repetition and after 75 moves.
        win_cp, draw_cp, adjudicate_plies, draw_from_ply: if there is a referee, a side has won when its
            evaluation was at least `win_cp` centipawns for `adjudicate_plies` plies in a row, and the game
            is a draw when it was within `draw_cp` as long, from `draw_from_ply` on. The 1300 centipawns are
            those of searchless_chess.
    """

    illegal: str = "forfeit"
    max_plies: int = 400
    limit_cp: int | None = None
    claim_draws: bool = True
    win_cp: int = 1300
    draw_cp: int = 10
    adjudicate_plies: int = 6
    draw_from_ply: int = 80

    @property
    def tries(self) -> int:
        """How often a player is asked for one move."""
        return 1 + int(self.illegal.removeprefix("retry:")) if self.illegal.startswith("retry:") else 1


@dataclass
class GameState:
    """A game by `rules` on `board`, whose move stack has the moves so far. `scores` are the evaluations of a
    referee, if there is one, for White."""

    board: chess.Board
    rules: Rules = field(default_factory=Rules)
    scores: list[Evaluation] = field(default_factory=list)
    forfeited: bool = field(default=False, init=False)
    """The side to move has lost, because its answer had no legal move."""

    def play(self, move: chess.Move | None, *, seed: int = 0) -> chess.Move | None:
        """Makes a move and returns it. If there is none, the rules say what happens: a random move, drawn by
        `seed`, is made instead, or the game is lost. Raises `InvalidInput` if the move is not legal."""
        if move is None and self.rules.illegal == "random":
            move = random_move(self.board, seed=seed)
        if move is None:
            self.forfeited = True
        elif self.board.is_legal(move):
            self.board.push(move)
        else:
            raise InvalidInput(f"{move.uci()!r} is not a legal move in {self.board.fen()!r}")
        return move

    @property
    def end(self) -> tuple[str, str] | None:
        """The result and the termination, or None while the game goes on."""
        board, rules, scores = self.board, self.rules, self.scores
        if self.forfeited:
            return ("0-1" if board.turn else "1-0"), ILLEGAL_MOVE
        if (outcome := board.outcome()) is not None:
            return outcome.result(), outcome.termination.name.lower()
        if rules.claim_draws:
            # `can_claim_*` would also try every legal move for a claim in advance, which takes far longer.
            if board.halfmove_clock >= 100:
                return "1/2-1/2", chess.Termination.FIFTY_MOVES.name.lower()
            if board.is_repetition(3):
                return "1/2-1/2", chess.Termination.THREEFOLD_REPETITION.name.lower()
        if result := _adjudicated(board.ply(), scores, rules):
            return result, ADJUDICATION
        if len(board.move_stack) < rules.max_plies:
            return None
        leader = _leader(scores[-1:], rules.limit_cp) if scores and rules.limit_cp else None
        return leader or "1/2-1/2", PLY_LIMIT


def _adjudicated(ply: int, scores: Sequence[Evaluation], rules: Rules) -> str | None:
    recent = scores[-rules.adjudicate_plies :]
    if len(recent) < rules.adjudicate_plies:
        return None
    if winner := _leader(recent, rules.win_cp):
        return winner
    drawn = ply >= rules.draw_from_ply and all(
        score.cp is not None and abs(score.cp) <= rules.draw_cp for score in recent
    )
    return "1/2-1/2" if drawn else None


def _leader(scores: Sequence[Evaluation], cp: int) -> str | None:
    """The result for the side that led by `cp` centipawns after each of the moves, or None."""
    mates = (-math.inf, math.inf)
    leads = [score.cp if score.mate is None else mates[score.mate > 0] for score in scores]
    if all(lead is not None and lead >= cp for lead in leads):
        return "1-0"
    return "0-1" if all(lead is not None and lead <= -cp for lead in leads) else None


def random_move(board: chess.Board, *, seed: int) -> chess.Move:
    """A legal move, drawn uniformly. The same position and seed give the same move.

    >>> random_move(chess.Board(), seed=1).uci()
    'b2b3'
    """
    return random.Random(seed).choice(sorted(board.legal_moves, key=chess.Move.uci))


def position_of(board: chess.Board) -> Position:
    """The position of `board` with the moves before it, as a prompt needs it. The phase is not determined."""
    moves = tuple(move.uci() for move in board.move_stack)
    return Position("game", board.fen(), board.ply(), Phase.MIDDLEGAME, "game", last_moves=moves)
