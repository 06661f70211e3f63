"""Claims about what a line brings: pieces won and lost, exchanges, mate."""

from collections import Counter

import chess

from services.data.annotate.claims.forms.lines import plays
from services.data.annotate.claims.forms.material import fits, minors_alike
from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import units_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    all_of,
    count,
)
from services.data.annotate.claims.token import Token

_KINDS = ("pawn", "knight", "bishop", "rook", "queen")
_SO_FAR = "(just |simply |cleanly )?"


def _change(scene: Scene, side: chess.Color) -> Counter[str]:
    """Pieces that the moves so far have brought `side`, like against like; lost ones count negative."""
    change: Counter[str] = Counter()
    for name in _KINDS:
        own = count(scene.board, side, name) - count(scene.start, side, name)
        enemy = count(scene.board, not side, name) - count(scene.start, not side, name)
        change[name] = own - enemy
    return change


def brings(scene: Scene, side: chess.Color, won: str, lost: str = "") -> bool:
    """Whether the moves so far bring `side` just this for just that; a knight may count as a bishop."""
    change = _change(scene, side)
    gained = Counter({name: n for name, n in change.items() if n > 0})
    paid = Counter({name: -n for name, n in change.items() if n < 0})
    readings = ((gained, paid), minors_alike(gained, paid))
    return bool(scene.moves) and any(_is(won, got) and _is(lost, gave) for got, gave in readings)


def _is(words: str, actual: Counter[str]) -> bool:
    return fits(units_of(words), actual) if words else not actual


@says(
    _SO_FAR + "~(win|pick up|net|collect|gain|pocket|bag) {u}( for {v:u})?",
    "~have won {u}( for {v:u})?",
    "~get {u} for {v:u}",
    subject="side",
)
def side_wins(scene: Scene, side: Token, u: str, v: str = "") -> bool:
    return brings(scene, scene.side(side), u, v)


@says(
    _SO_FAR + "~(lose|drop|shed) {u}( for {v:u})?",
    "~have (lost|dropped) {u}( for {v:u})?",
    "~have (given|exchanged|traded) {u} for {v:u}",
    subject="side",
)
def side_loses(scene: Scene, side: Token, u: str, v: str = "") -> bool:
    return brings(scene, not scene.side(side), u, v)


@says(
    _SO_FAR + "~win the exchange( for {u})?",
    "~have won the exchange",
    subject="side",
)
def side_wins_exchange(scene: Scene, side: Token, u: str = "") -> bool:
    return _exchange(scene, scene.side(side), u)


@says(_SO_FAR + "~(lose|drop) the exchange( for {u})?", "~have lost the exchange", subject="side")
def side_loses_exchange(scene: Scene, side: Token, u: str = "") -> bool:
    return _exchange(scene, not scene.side(side), u)


def _exchange(scene: Scene, side: chess.Color, pawns: str = "") -> bool:
    price = f" and {pawns}" if pawns else ""
    return any(brings(scene, side, "a rook", f"a {minor}{price}") for minor in ("knight", "bishop"))


@says(
    _SO_FAR + "~(win|net|gain|pick up|collect) {u}( for {v:u})?( for {s})?",
    _SO_FAR + "~bring {s} {u}( for {v:u})?",
    "~cost {t:s} {u}( for {v:u})?",
    subject="line",
)
def line_wins(
    scene: Scene, line: Token, u: str, v: str = "", s: Token | None = None, t: Token | None = None
) -> bool:
    played = plays(scene, line)
    if t is not None:
        return played and brings(scene, not scene.side(t), u, v)
    side = scene.side(s) if s else _winner_by_default(scene, line)
    return played and brings(scene, side, u, v)


def _winner_by_default(scene: Scene, line: Token) -> chess.Color:
    """A line wins something for whoever begins it."""
    return bool(scene.start.turn ^ (len(scene.moves) - len(line.moves)) % 2)


@says("~(lose|drop) {u}( for {v:u})?", subject="move")
def move_loses(scene: Scene, move: Token, u: str, v: str = "") -> bool:
    return _somewhere(scene, move, not scene.mover, u, v)


def _somewhere(scene: Scene, move: Token, side: chess.Color, won: str, lost: str) -> bool:
    """Whether the engine's line that begins with the move comes to a point where just this has been won."""
    scene.step(move)
    line = scene.evidence()
    found = False
    for uci in line.pv[len(scene.moves) :]:
        following = scene.board.copy(stack=False)
        following.push(chess.Move.from_uci(uci))
        scene.board = following
        found = found or brings(scene, side, won, lost)
    scene.step(move)
    return found


@says("~(lose|drop) the exchange", subject="move")
def move_loses_exchange(scene: Scene, move: Token) -> bool:
    return any(
        _somewhere(scene, move, not scene.mover, "a rook", f"a {minor}") for minor in ("knight", "bishop")
    )


@says("~(allow|run into|permit) mate", "~get «s\\d+» mated", "~be (mated|refuted by mate)", subject="move")
def move_allows_mate(scene: Scene, move: Token) -> bool:
    scene.step(move)
    evaluation = scene.evidence().evaluation
    return evaluation.mate is not None and evaluation.mate < 0


@says(
    "(the )?queens (~come off|~disappear|~leave the board|are exchanged|are traded|are off|~be gone)",
)
def queens_came_off(scene: Scene) -> bool:
    before = [all_of(scene.start, side, "queen") for side in chess.COLORS]
    now = [all_of(scene.board, side, "queen") for side in chess.COLORS]
    return all(before) and not any(now)


@says(
    "«i\\d+» ~be (checkmate|mate)( on the spot)?",
    "that ~be (checkmate|mate)",
    "the game ~be over",
)
def it_is_mate(scene: Scene) -> bool:
    return scene.board.is_checkmate()


@says("~be (mated|checkmated)", "~get mated", subject="side")
def side_is_mated(scene: Scene, side: Token) -> bool:
    return scene.board.is_checkmate() and scene.board.turn == scene.side(side)


@says("~be (checkmate|mate)", "~mate", "~end in (checkmate|mate)", "~force mate", subject="line")
def line_mates(scene: Scene, line: Token) -> bool:
    return plays(scene, line) and scene.board.is_checkmate()


@says("~(have|give|deliver) (checkmate|mate)", "~mate", "~(win|finish) by mate", subject="side")
def side_mates(scene: Scene, side: Token) -> bool:
    return scene.board.is_checkmate() and scene.board.turn != scene.side(side)
