"""The blows a move strikes: mate, check, captures, promotion, threats of mate."""

from collections.abc import Iterator

import chess

from commentary import predicates
from commentary.concept import Values, move_concept, when
from commentary.concepts.mates import AT_ONCE, is_threat, mating_moves, would_mate
from commentary.concepts.tactics import undefended
from commentary.context import Context, Unknown
from commentary.exchange import VALUES, gain, passed_turn
from commentary.naming import bare
from commentary.step import Step

move_concept(
    "mates",
    detect=when(lambda step: step.after.is_checkmate()),
    holds=lambda context: context.board.is_checkmate(),
    weight=100.0,
).says(
    "~be (mate|checkmate)( at once| on the spot| straight away)?",
    "~mate on the spot",
    "~end the game at once",
    "||~mate( at once| straight away)?",
    "||~(give|deliver) (mate|checkmate)",
    "||~end the game( on the spot)?",
)

move_concept(
    "stalemates",
    detect=when(lambda step: step.after.is_stalemate()),
    holds=lambda c: c.board.is_stalemate(),
    weight=-100.0,
).says("~be (stalemate||a stalemate)")


def _promotes(step: Step) -> Iterator[Values]:
    if step.move.promotion:
        queen = step.move.promotion == chess.QUEEN
        yield {"kind": step.move.promotion, "pawn": step.origin, "queen": step.target if queen else None}


@move_concept("promotes", detect=_promotes, weight=9.0).says(
    "~promote to a {kind}",
    "~make a new {kind}",
    "~turn {pawn:before} into a {kind}",
    "~(promote|queen) on {queen:square}",
    "||~promote( on {queen:square})?",
)
def _is_promoting(context: Context, kind: int | None = None, pawn: int = -1, queen: int = -1) -> bool:
    new = context.move.promotion
    there = pawn in (-1, context.origin) and queen in (-1, context.to)
    return new is not None and kind in (None, new) and there


def _captures(step: Step) -> Iterator[Values]:
    if step.victim is None:
        return
    kind = step.before.piece_type_at(step.victim)
    passing = step.before.is_en_passant(step.move)
    loose = undefended(step.before, step.victim) and not passing
    trade = not loose and kind == step.kind and kind != chess.PAWN and gain(step.before, step.move) == 0
    names = ["passing"] if passing else ["loose", "free"] if loose else ["traded"] if trade else ["plain"]
    capturer = {"own": step.origin} if trade else {}
    yield {"victim": step.victim, "kind": kind, **dict.fromkeys(names, step.victim), **capturer}


@move_concept("captures", detect=_captures, weight=lambda board, v: 8.0 + VALUES[v["kind"]] / 2).says(
    "~take {passing:before} en passant",
    "~capture {passing:before} en passant",
    "~(take|capture) {loose:before}, which nothing (defends||protects|guards)",
    "~(pick up|collect|grab||pocket|snatch) {free:before}",
    "||~win {won:before}",
    "~(take|capture|remove||eliminate|eat) {plain:before}",
    "~(exchange|trade||give up|part with) {own:before} for {traded:before}",
    "||(simply |just )?~(take|capture|remove|eat|eliminate) {victim:before}( en passant)?",
    "<(~(involve|suggest|mean|represent|be) )?~(capture|take) {victim:before}",
    "||(simply |just )~(grab|collect|snatch|pocket|pick up) {free:before}",
    "||(simply |just )~win {won:before}",
)
def _takes(context: Context, own: int | None = None, **slots: int) -> bool:
    ((how, square),) = slots.items()
    before = context.before
    if how == "traded" and context.victim in (None, own):
        raise Unknown("an exchange that is offered, or the other way round")
    if how == "won" and context.victim is None:
        raise Unknown("it may be taken later")
    if how == "loose" and predicates.defenders(before, square):
        return False
    if how == "passing" and not before.is_en_passant(context.move):
        return False
    if context.victim != square or own not in (None, context.origin):
        return False
    return how not in ("free", "won") or is_gain(context)


def is_gain(context: Context) -> bool:
    """Whether what the move takes is gained: it is loose, or worth more than what takes it. Raises `Unknown`
    if it may be an exchange."""
    before, victim = context.before, context.victim
    if victim is None:
        return False
    dearer = predicates.worth_at(before, victim) > predicates.worth_at(before, context.origin)
    if predicates.defenders(before, victim) and not dearer:
        raise Unknown("an exchange")
    return True


@move_concept("recaptures", weight=3.0).says(
    "~(recapture|take back)",
    "~(recapture|take back) on {here:square}",
)
def _retakes(context: Context) -> bool:
    """Whether the move captures a piece that has just captured on that square. Raises `Unknown` if the move
    before is not known, and it may have been a capture."""
    before, square = context.before, context.victim
    if square is None or before.halfmove_clock or before.ep_square is not None or context.is_threat:
        return False  # the move before was no capture
    uci = context.moves[-2].uci() if len(context.moves) > 1 else context.study.last
    if uci is None:
        raise Unknown("the move before")
    last = chess.Move.from_uci(uci)
    pawn = last.promotion is not None or predicates.is_pawn(before, last.to_square)
    straight = chess.square_file(last.from_square) == chess.square_file(last.to_square)
    return last.to_square == square and not (pawn and straight)


def _checks(step: Step) -> Iterator[Values]:
    if not step.after.is_check():
        return
    checkers = set(chess.scan_forward(step.after.checkers_mask()))
    moved = {step.target}
    if step.castles:
        moved.add(chess.square(5 if step.target > step.origin else 3, chess.square_rank(step.origin)))
    hidden = sorted(checkers - moved)
    replies = step.after.legal_moves.count()
    if hidden:
        yield {"checker": hidden[0]}
    else:
        counted = {1: {"one": 1}, 2: {"few": 2}}.get(replies, {})
        yield {"king": step.after.king(not step.mover), "plain": step.target, **counted}


@move_concept("checks", detect=_checks, needs="plain", weight=5.0).says(
    "~give check( from {plain:square})?",
    "~come with check",
    "~check {king}( from {plain:square})?",
    "~give check and ~leave only {one:count} legal reply",
    "~be check and ~leave only {few:count} legal replies",
    "||~(give|be|come with|arrive with) (a )?check",
    "||~(put|place) {king} (in|under) check",
    "||~leave (just |only )?{few:count} legal (reply|replies|answer|answers)",
)
def _gives_check(context: Context, king: int | None = None, plain: int | None = None, **replies: int) -> bool:
    board = context.board
    counted = all(count == board.legal_moves.count() for count in replies.values())
    return board.is_check() and king in (None, board.king(board.turn)) and counted


@move_concept("discovers check", detect=_checks, needs="checker", weight=5.5).says(
    "~give (|a )discovered check from {checker}",
    "~uncover a check by {checker}",
    "||~give (a )?discovered check",
)
def _uncovers_check(context: Context, checker: int | None = None) -> bool:
    hidden = set(context.board.checkers()) - {context.to}
    return bool(hidden) and (checker is None or checker in hidden)


def _threatens_mate(step: Step) -> Iterator[Values]:
    passed = passed_turn(step.after)
    if passed is not None and not step.after.is_game_over() and (moves := mating_moves(passed)):
        yield {"foe": bare(passed, moves[0])}


move_concept("threatens mate", detect=_threatens_mate, holds=would_mate, weight=8.0).says(
    "~threaten mate with {foe}( next)?",
    "~(threaten|carry the threat of|prepare mate with) {foe:mate}",
    "||~(prepare mate|threaten checkmate) with {foe}",
    "||~threaten " + AT_ONCE,
)

move_concept("threatens a move", holds=is_threat).says(
    "||~(threaten|carry the threat of) (to play )?{foe}( next)?"
)


def _is_forcing(context: Context) -> bool:
    return context.victim is not None or context.board.is_check() or bool(context.move.promotion)


move_concept("quiet move", holds=lambda context: not _is_forcing(context), weight=0.3).says(
    "~(be|look) (quiet||calm|a quiet move|a calm move)"
)
move_concept("forcing move", holds=_is_forcing, weight=0.3).says(
    "~be forcing",
    "~be a forcing (move||try|line)",
)
move_concept("only move", holds=lambda context: context.before.legal_moves.count() == 1).says(
    "~be (the only legal move|forced||the sole legal reply|the only legal reply)"
)
