"""What a move does to the shape of the position: castling, development, files, pawns, squares for pieces."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from commentary import sight
from commentary.concept import Values, deed
from commentary.concepts.files import heavy
from commentary.concepts.pawns import ahead, is_passed, steps, stop_of
from commentary.concepts.pieces import at_home, home_count, is_outpost, pawns_can_attack
from commentary.scene import Scene
from commentary.step import Step

_BIG_CENTRE = (chess.BB_FILE_C | chess.BB_FILE_D | chess.BB_FILE_E | chess.BB_FILE_F) & (
    chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6
)
_MIDDLE = chess.BB_D4 | chess.BB_E4 | chess.BB_D5 | chess.BB_E5
_EARLY_PLIES = 40
_MORE_SQUARES = 3
"""Squares a piece must gain to be called freed."""

# -- castling and development --------------------------------------------------------------------


def _castles(step: Step) -> Iterator[Values]:
    if step.castles:
        short = step.target > step.origin
        wing, word = ("kingside", "short") if short else ("queenside", "long")
        yield {"wing": wing, "short": word, "king": step.target}


def _is_castling(scene: Scene, wing: str = "", short: str = "", king: int | None = None) -> bool:
    if not scene.before.is_castling(scene.move):
        return False
    names = ("kingside", "short") if scene.to > scene.move.from_square else ("queenside", "long")
    own = sight.all_of(scene.board, scene.before.turn, "king")[0]
    return all(word in ("", *names) for word in (wing, short)) and king in (None, own)


deed(
    "castles",
    "~castle ({wing:word}|{short:word})",
    "~(get|tuck||bring) {king} (out of||away from) the centre",
    "~bring {king} to safety by castling",
    "||~castle",
    "||~tuck {king} away from the centre",
    detect=_castles,
    holds=_is_castling,
    weight=4.0,
)


def _develops(step: Step) -> Iterator[Values]:
    if step.origin in at_home(step.before, step.mover) and step.before.ply() <= _EARLY_PLIES:
        left = len(at_home(step.after, step.mover))
        yield {
            "kind": step.kind,
            "piece": step.target,
            "last": step.target if left == 0 else None,
            "another": step.target if 0 < left < 3 else None,
        }


def _is_developing(
    scene: Scene,
    kind: int | None = None,
    piece: int | None = None,
    last: int | None = None,
    another: int | None = None,
) -> bool:
    before, after = (home_count(board, scene.before.turn) for board in (scene.before, scene.board))
    right = kind in (None, scene.board.piece_type_at(scene.to)) and piece in (None, scene.to)
    return after < before and right and (last is None or after == 0)


deed(
    "develops",
    "~(develop||bring out) a {kind}",
    "~bring out a {kind}",
    "~develop {piece}",
    "~bring {piece} (into play||out|into the game)",
    "~bring out {last:piece}, (the last minor piece at home)",
    "||~(develop|bring out) (a|another|the last) piece",
    "||~complete (the )?development( of the minor pieces)?",
    detect=_develops,
    holds=_is_developing,
    weight=2.5,
)

# -- files ---------------------------------------------------------------------------------------


def _opens_file(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.origin)
    mask = chess.BB_FILES[file]
    if step.kind == chess.PAWN and step.before.pawns & mask and not step.after.pawns & mask:
        yield {"file": file}


deed(
    "opens a file",
    "~open {file}( up)?",
    "~clear {file}",
    detect=_opens_file,
    holds=lambda scene, file: sight.is_open(scene.board, file) and not sight.is_open(scene.before, file),
    weight=2.0,
)


def _takes_file(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.target)
    heavy_piece = step.arrived in (chess.ROOK, chess.QUEEN) and not step.move.promotion
    if not heavy_piece or step.castles or chess.square_file(step.origin) == file:
        return
    own = step.after.pieces_mask(chess.PAWN, step.mover) & chess.BB_FILES[file]
    if not own:
        clear = not step.after.pawns & chess.BB_FILES[file]
        rook = step.arrived == chess.ROOK
        yield {
            "open": file if clear else None,
            "half": None if clear else file,
            "rook": file if rook else None,
            "piece": step.target,
        }


def _is_on_file(
    scene: Scene,
    open: int | None = None,
    half: int | None = None,
    file: int | None = None,
    rook: int | None = None,
    piece: int | None = None,
) -> bool:
    named = next(f for f in (open, half, file, rook) if f is not None)
    name = sight.name_at(scene.board, scene.to)
    right = chess.square_file(scene.to) == named and piece in (None, scene.to)
    clear = not sight.pawns_on(scene.board, named, scene.before.turn)
    return right and name in ("rook", "queen") and (rook is None or name == "rook") and clear


deed(
    "takes a file",
    "~(occupy|take|claim|seize||use) ({open:open_file}|{half:half_file})",
    "~(put {piece} on|bring {piece} to||post {piece} on|swing {piece} to) ({open:open_file}|{half:half_file})",
    "||~(put|bring|place|post|swing) {piece} (on|to) {file}",
    "||~(occupy|take|claim|seize|use) {file}",
    "||~(put|bring|place|post|swing|take) a rook (on|to) {rook:file}",
    detect=_takes_file,
    holds=_is_on_file,
    weight=2.6,
)


def _takes_seventh(step: Step) -> Iterator[Values]:
    seventh, eighth = (chess.BB_RANK_7, chess.BB_RANK_8) if step.mover else (chess.BB_RANK_2, chess.BB_RANK_1)
    prey = step.enemy(step.after) & (step.after.pawns & seventh | step.after.kings & (seventh | eighth))
    arrives = chess.BB_SQUARES[step.target] & seventh and not chess.BB_SQUARES[step.origin] & seventh
    if step.arrived == chess.ROOK and arrives and prey:
        yield {}


deed(
    "takes the seventh",
    "~(invade|reach|seize||enter|penetrate to) the seventh rank",
    "~penetrate to the seventh",
    "||~(invade|reach|seize|enter) the seventh",
    detect=_takes_seventh,
    holds=lambda scene: (
        sight.name_at(scene.board, scene.to) == "rook"
        and chess.square_rank(scene.to) == (6 if scene.before.turn else 1)
    ),
    weight=3.0,
)


def _doubles(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.target)
    if step.arrived not in (chess.ROOK, chess.QUEEN) or chess.square_file(step.origin) == file:
        return
    own = step.after.pieces_mask(chess.PAWN, step.mover) & chess.BB_FILES[file]
    others = [s for s in heavy(step.after, step.mover, file) if s != step.target]
    near = [s for s in others if not chess.between(s, step.target) & step.after.occupied]
    rooks = step.after.rooks & (chess.BB_SQUARES[step.target] | chess.BB_SQUARES[near[0]] if near else 0)
    if not own and near and rooks:
        both = (rooks).bit_count() == 2
        yield {"file": file, "rooks": file if both else None}


def _is_doubling(scene: Scene, file: int | None = None, rooks: int | None = None) -> bool:
    board, place = scene.board, scene.to
    names = ("rook",) if rooks is not None else ("rook", "queen")
    named = file if file is not None else rooks
    if named != chess.square_file(place) or sight.name_at(board, place) not in names:
        return False
    own = sight.all_of(board, scene.before.turn, *names)
    return any(chess.square_file(s) == named and s in board.attacks(place) for s in own)


deed(
    "doubles on a file",
    "~(double|stack||double up) the heavy pieces on {file}",
    "~double (the |)rooks on {rooks:file}",
    "||~double (heavy pieces )?on {file}",
    detect=_doubles,
    holds=_is_doubling,
    weight=2.8,
)

# -- squares -------------------------------------------------------------------------------------


def _takes_outpost(step: Step) -> Iterator[Values]:
    if step.kind not in (chess.KNIGHT, chess.BISHOP):
        return
    rest = steps(step.target, step.mover)
    guarded = step.after.attackers_mask(step.mover, step.target) & step.after.pawns
    if 2 <= rest <= 4 and guarded and not pawns_can_attack(step.after, step.target, not step.mover):
        yield {"square": step.target, "piece": step.target}


deed(
    "takes an outpost",
    "~(settle on|occupy||land on|claim|take) an outpost",
    "~take an outpost on {square}",
    "~(plant|put||post|install) {piece} on an outpost",
    detect=_takes_outpost,
    holds=lambda scene, square=None, piece=None: (
        is_outpost(scene.board, scene.to) and square in (None, scene.to) and piece in (None, scene.to)
    ),
    weight=3.2,
)


def _centralises(step: Step) -> Iterator[Values]:
    enters = _BIG_CENTRE & chess.BB_SQUARES[step.target] and not _BIG_CENTRE & chess.BB_SQUARES[step.origin]
    pieces = step.after.occupied & ~step.after.pawns & ~step.after.kings
    late = pieces.bit_count() <= 4 and not step.after.queens
    if enters and (step.kind == chess.KNIGHT or (step.kind == chess.KING and late)):
        knight = step.kind == chess.KNIGHT
        yield {"kind": step.kind if knight else None, "piece": step.target}


def _is_central_now(scene: Scene, kind: int | None = None, piece: int | None = None) -> bool:
    inside = [
        2 <= chess.square_file(s) <= 5 and 2 <= chess.square_rank(s) <= 5
        for s in (scene.move.from_square, scene.to)
    ]
    right = piece in (None, scene.to) and kind in (None, scene.board.piece_type_at(scene.to))
    return right and inside == [False, True]


deed(
    "centralises",
    "~centralise (a {kind}|{piece})",
    "~bring (a {kind}|{piece}) (towards||into|to) the centre",
    detect=_centralises,
    holds=_is_central_now,
    weight=1.8,
)


def _covers(step: Step) -> Iterator[Values]:
    fresh = step.after.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin)
    theirs = chess.BB_RANK_5 | chess.BB_RANK_6 if step.mover else chess.BB_RANK_4 | chess.BB_RANK_3
    squares = fresh & (theirs & _BIG_CENTRE | _MIDDLE) & ~step.after.occupied
    if squares and step.kind != chess.KING and not step.castles:
        ranked = sorted(chess.scan_forward(squares), key=lambda s: not _MIDDLE & chess.BB_SQUARES[s])
        yield {"fields": sorted(ranked[:2])}


deed(
    "covers squares",
    "~(control|cover|watch|eye||take control of) {fields:squares}",
    "~take {fields:squares} under control",
    detect=_covers,
    holds=lambda scene, fields: set(fields) <= set(scene.board.attacks(scene.to)),
    weight=0.8,
)


def _denies(step: Step) -> Iterator[Values]:
    if step.kind != chess.PAWN or step.move.promotion:
        return
    board = step.after
    half = sum(chess.BB_RANKS[r] for r in ((2, 3, 4) if step.mover else (5, 4, 3)))
    fresh = board.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin)
    minors = (board.knights | board.bishops) & step.enemy(board)
    for square in chess.scan_forward(fresh & half & ~board.occupied):
        for piece in chess.scan_forward(board.attackers_mask(not step.mover, square) & minors):
            yield {"square": square, "piece": piece}
            return


def _is_denying(scene: Scene, square: int, piece: int) -> bool:
    reached = square in scene.board.attacks(piece) and scene.board.color_at(piece) == scene.board.turn
    return square in scene.board.attacks(scene.to) and reached


deed(
    "denies a square",
    "~take {square} away from {piece}",
    "~deny {piece} the square {square}",
    "~keep {piece} out of {square}",
    detect=_denies,
    holds=_is_denying,
    weight=1.7,
)


def _frees(step: Step) -> Iterator[Values]:
    board = step.after
    sliders = (board.bishops | board.rooks | board.queens) & board.occupied_co[step.mover]
    best, most = None, _MORE_SQUARES - 1
    for square in chess.scan_forward(sliders & ~chess.BB_SQUARES[step.target]):
        more = board.attacks_mask(square).bit_count() - step.before.attacks_mask(square).bit_count()
        if more > most:
            best, most = square, more
    if best is not None and not step.castles:
        yield {"piece": best}


def _is_freeing(scene: Scene, piece: int) -> bool:
    own = scene.board.color_at(piece) == scene.before.turn and piece != scene.to
    slider = sight.name_at(scene.board, piece) in ("bishop", "rook", "queen")
    now, then = (len(board.attacks(piece)) for board in (scene.board, scene.before))
    return own and slider and now >= then + _MORE_SQUARES


deed(
    "frees a piece",
    "~(free|activate|make room for||release|open up|wake up|give more scope to) {piece}",
    "~open lines for {piece}",
    "~give {piece} more (scope|room||air|squares)",
    "||~open (a |the )?(line|diagonal|path) for {piece}",
    detect=_frees,
    holds=_is_freeing,
    weight=2.0,
)

# -- passed pawns --------------------------------------------------------------------------------


def _pushes(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    if not moved or not is_passed(step.after, step.target, step.mover):
        return
    if is_passed(step.before, step.origin, step.mover):
        left = steps(step.target, step.mover)
        yield {
            "square": step.target,
            "pawn": step.origin,
            "near": left if 1 < left <= 3 else None,
            "next": step.target if left == 1 else None,
        }


def _is_pushing(
    scene: Scene,
    pawn: int,
    square: int | None = None,
    near: int | None = None,
    next: int | None = None,
) -> bool:
    right = all(place in (None, scene.to) for place in (square, next))
    left = sight.steps_to_go(scene.to, scene.before.turn)
    counted = near in (None, left) and (next is None or left == 1)
    right = right and pawn == scene.move.from_square
    return right and counted and sight.is_passed(scene.before, pawn)


deed(
    "pushes a passed pawn",
    "~(push|advance) {pawn:passer} to {square}",
    "~(push|advance) {pawn:passer}",
    "~run {pawn:passer} forward",
    "~(push|advance) {pawn:passer} and ~leave it only {near:count} steps from queening",
    "~push {pawn:passer} to {next:square}, one step from queening",
    "||~(push|advance|run) {pawn:passer}( forward| on| further)?",
    "||~push {pawn:before}( on| further)?",
    detect=_pushes,
    holds=_is_pushing,
    weight=3.8,
)


def _makes_passer(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    was = is_passed(step.before, step.origin, step.mover)
    if moved and not was and is_passed(step.after, step.target, step.mover):
        yield {"pawn": step.target, "side": step.mover}


def _is_new_passer(scene: Scene, pawn: int | None = None, side: bool | None = None) -> bool:
    fresh = sight.is_passed(scene.board, scene.to) and not sight.is_passed(
        scene.before, scene.move.from_square
    )
    return fresh and pawn in (None, scene.to) and side in (None, scene.before.turn)


deed(
    "makes a passed pawn",
    "~(create|make||produce|obtain) a passed pawn on {pawn:square}",
    "~give {side:object} a passed pawn on {pawn:square}",
    "||~(create|make|produce|obtain) a passed pawn",
    "||~give {side:object} a passed pawn",
    detect=_makes_passer,
    holds=_is_new_passer,
    weight=4.2,
)


def _blockades(step: Step) -> Iterator[Values]:
    stop = stop_of(step.target, step.mover)
    if step.kind == chess.PAWN or not 0 <= stop < 64:
        return
    pawns = step.after.pieces_mask(chess.PAWN, not step.mover)
    if pawns & chess.BB_SQUARES[stop] and is_passed(step.after, stop, not step.mover):
        yield {"pawn": stop}


def _is_blockading(scene: Scene, pawn: int) -> bool:
    board, side = scene.board, scene.board.color_at(pawn)
    enemy = side == board.turn and sight.is_passed(board, pawn)
    return enemy and sight.ahead_of(pawn, board.turn)[0] == scene.to


deed(
    "blockades",
    "~(blockade|stand in the way of||block|halt|stop) {pawn}( for now)?",
    detect=_blockades,
    holds=_is_blockading,
    weight=3.0,
)


def _backs(step: Step) -> Iterator[Values]:
    if step.arrived != chess.ROOK or chess.square_file(step.origin) == chess.square_file(step.target):
        return
    reach = step.after.attacks_mask(step.target) & step.after.pieces_mask(chess.PAWN, step.mover)
    for pawn in chess.scan_forward(reach & ahead(step.target, step.mover)):
        if is_passed(step.after, pawn, step.mover):
            yield {"pawn": pawn}


def _is_behind(scene: Scene, pawn: int) -> bool:
    board, rook = scene.board, scene.to
    own = board.color_at(pawn) == scene.before.turn and sight.is_passed(board, pawn)
    file = chess.square_file(rook) == chess.square_file(pawn)
    behind = file and rook not in sight.ahead_of(pawn, scene.before.turn)
    return own and behind and sight.name_at(board, rook) == "rook" and pawn in board.attacks(rook)


deed(
    "backs a passed pawn",
    "~get behind {pawn}",
    "~support {pawn} from behind",
    "~put a rook behind {pawn}",
    detect=_backs,
    holds=_is_behind,
    weight=3.0,
)


deed(
    "recaptures",
    "~(recapture|take back)",
    "||~(recapture|take back) on {square}",
    holds=lambda scene, square=None: scene.victim is not None and square in (None, scene.to),
    weight=3.0,
)
