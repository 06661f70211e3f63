"""Claims about the blows a move strikes: captures, promotions, checks, threats of mate.

Names of pieces that the move captures are looked up on the board before it, all others after it.
"""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    defenders,
    mating_moves,
    other_turn,
)
from services.data.annotate.claims.token import Token


def captured(before: chess.Board, move: chess.Move) -> chess.Square | None:
    """Where the piece stood that a move takes."""
    if not before.is_capture(move):
        return None
    if before.is_en_passant(move):
        return chess.square(chess.square_file(move.to_square), chess.square_rank(move.from_square))
    return move.to_square


@says(
    "(simply |just )?~(take|capture|remove|grab|collect|snatch|pocket|eat|"
    "eliminate) {victim:p}( en passant)?( with check)?",
    "~pick up {victim:p}",
    subject="move",
)
def takes(scene: Scene, move: Token, victim: Token, o: Token | None = None) -> bool:
    before, played, _ = scene.step(move)
    return scene.piece(victim, before) == captured(before, played)


@says(
    "~(take|capture|grab|pick up|collect|snatch) {victim:p}, which (nothing|nobody|no piece) (defends|"
    "protects|guards)",
    subject="move",
)
def takes_loose(scene: Scene, move: Token, victim: Token) -> bool:
    before, played, _ = scene.step(move)
    square = scene.piece(victim, before)
    return square == captured(before, played) and not defenders(before, square)


@says("~exchange {a:p} for {b:p}", "~(give up|part with|trade) {a:p} for {b:p}", subject="move")
def exchanges(scene: Scene, move: Token, a: Token, b: Token) -> bool:
    before, played, _ = scene.step(move)
    return scene.piece(a, before) == played.from_square and scene.piece(b, before) == captured(before, played)


@says(
    "~(promote|queen)( on {q})?",
    "~promote to a {name:w}",
    "~make a (new )?{name:w}",
    "~(turn|transform) «p\\d+» into a {name:w}",
    subject="move",
)
def promotes(scene: Scene, move: Token, name: str = "", q: Token | None = None) -> bool:
    _, played, _ = scene.step(move)
    kind = chess.piece_name(played.promotion) if played.promotion else ""
    place = q is None or scene.squares(q) == [played.to_square]
    return kind != "" and name in ("", kind) and place


@says(
    "~(give|be|come with|arrive with) (a )?check( from {by:p})?",
    "~check {king:p}( from {q})?",
    subject="move",
)
def checks(
    scene: Scene, move: Token, by: Token | None = None, king: Token | None = None, q: Token | None = None
) -> bool:
    _, played, after = scene.step(move)
    right_king = king is None or scene.piece(king) == after.king(after.turn)
    right_square = q is None or scene.squares(q) == [played.to_square]
    right_piece = by is None or scene.piece(by) in after.checkers()
    return after.is_check() and right_king and right_square and right_piece


@says(
    "~give (a )?discovered check( from {by:p})?",
    "~uncover a check (from|by) {by:p}",
    subject="move",
)
def checks_by_discovery(scene: Scene, move: Token, by: Token | None = None) -> bool:
    _, played, after = scene.step(move)
    hidden = set(after.checkers()) - {played.to_square}
    return bool(hidden) and (by is None or scene.piece(by) in hidden)


@says("~(give|be) (a )?double check", subject="move")
def checks_twice(scene: Scene, move: Token) -> bool:
    return len(scene.step(move)[2].checkers()) == 2


@says(
    "~leave (just |only )?{n} legal (repl(y|ies)|answers?)",
    subject="move",
)
def leaves_replies(scene: Scene, move: Token, n: str = "one", s: Token | None = None) -> bool:
    _, _, after = scene.step(move)
    return after.legal_moves.count() == count_of(n) and (s is None or scene.side(s) == after.turn)


@says(
    "~threaten (mate with )?{m:a}( next)?",
    "~carry the threat of {m:a}",
    "~prepare mate with {m:a}",
    subject="move",
)
def move_threatens_mate(scene: Scene, move: Token, m: Token) -> bool:
    _, _, after = scene.step(move)
    then = other_turn(after)
    return then is not None and scene.move_on(then, m) in mating_moves(then)


@says(
    "~(be|look) (a )?(quiet|calm)( move)?",
    subject="move",
)
def is_quiet(scene: Scene, move: Token) -> bool:
    before, played, after = scene.step(move)
    return not before.is_capture(played) and not after.is_check() and not played.promotion


@says("~be (a )?forcing( move)?", "~be (a )?forcing (move|try|line)", subject="move")
def is_forcing(scene: Scene, move: Token) -> bool:
    before, played, after = scene.step(move)
    return before.is_capture(played) or after.is_check() or bool(played.promotion)


@says(
    "~be (a |the )?(only|sole) legal (move|reply)",
    "~be forced",
    subject="move",
)
def is_only_move(scene: Scene, move: Token) -> bool:
    return scene.step(move)[0].legal_moves.count() == 1


@says(
    "~be (stalemate|a stalemate)",
    "~stalemate {s}",
    "~leave {s} (stalemated|without a (legal )?move)",
    subject="move",
)
def is_stalemate(scene: Scene, move: Token, s: Token | None = None) -> bool:
    _, _, after = scene.step(move)
    return after.is_stalemate() and (s is None or scene.side(s) == after.turn)
