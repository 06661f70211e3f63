"""The blows a move strikes: mate, check, captures, promotion, threats of mate."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from commentary import predicates
from commentary.concept import Values, move_concept
from commentary.concepts.mates import Foe, is_threat, mating_moves
from commentary.concepts.tactics import undefended
from commentary.context import Context
from commentary.exchange import VALUES, passed_turn
from commentary.naming import bare
from commentary.predicates import other_turn
from commentary.step import Step


def _if(condition: bool, **values: object) -> Iterator[Values]:
    if condition:
        yield values


move_concept(
    "mates",
    detect=lambda step: _if(step.after.is_checkmate()),
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
    detect=lambda step: _if(step.after.is_stalemate(), them=not step.mover),
    holds=lambda context, them=None: context.board.is_stalemate() and them in (None, context.board.turn),
    weight=-100.0,
).says(
    "~be (stalemate||a stalemate)",
    "~stalemate {them:object}",
    "~leave {them:object} without a legal move",
    "||~leave {them:object} stalemated",
)


def _promotes(step: Step) -> Iterator[Values]:
    if step.move.promotion:
        queen = step.move.promotion == chess.QUEEN
        yield {"kind": step.move.promotion, "pawn": step.origin, "queen": step.target if queen else None}


move_concept(
    "promotes",
    detect=_promotes,
    holds=lambda context, kind=None, queen=None, pawn=None: (
        context.move.promotion is not None
        and pawn in (None, context.origin)
        and (kind in (None, context.move.promotion))
        and (queen in (None, context.to))
    ),
    weight=9.0,
).says(
    "~promote to a {kind}",
    "~make a new {kind}",
    "~turn {pawn:before} into a {kind}",
    "~(promote|queen) on {queen:square}",
    "||~(promote|queen)( on {queen:square})?",
)


def _captures(step: Step) -> Iterator[Values]:
    if step.victim is None:
        return
    kind = step.before.piece_type_at(step.victim)
    passing = step.before.is_en_passant(step.move)
    loose = undefended(step.before, step.victim) and not passing
    trade = not loose and kind == step.kind and kind != chess.PAWN
    last = step.before.peek().to_square if step.before.move_stack else None
    yield {
        "victim": step.victim,
        "passing": step.victim if passing else None,
        "loose": step.victim if loose else None,
        "free": step.victim if loose else None,
        "plain": None if passing or loose else step.victim,
        "own": step.origin if trade else None,
        "back": last == step.target,
        "kind": kind,
    }


@move_concept(
    "captures", detect=_captures, weight=lambda board, values: 8.0 + VALUES[values["kind"]] / 2
).says(
    "~take {passing:before} en passant",
    "~capture {passing:before} en passant",
    "~(take|capture) {loose:before}, which nothing (defends||protects|guards)",
    "~(pick up|collect|grab||win) {free:before}",
    "~(take|capture|remove||eliminate|eat) {plain:before}",
    "~(exchange|trade||give up|part with) {own:before} for {victim:before}",
    "||(simply |just )?~(take|capture|remove|grab|collect|snatch|pocket|eat|eliminate|pick up) {victim:before}( en passant)?",
)
def _takes(
    context: Context,
    victim: int | None = None,
    passing: int | None = None,
    loose: int | None = None,
    free: int | None = None,
    plain: int | None = None,
    own: int | None = None,
) -> bool:
    square = next(s for s in (victim, passing, loose, free, plain) if s is not None)
    right_own = own is None or own == context.origin
    unguarded = loose is None or not predicates.defenders(context.before, square)
    en_passant = passing is None or context.before.is_en_passant(context.move)
    return context.victim == square and right_own and unguarded and en_passant


def _checks(step: Step) -> Iterator[Values]:
    if not step.after.is_check():
        return
    checkers = set(chess.scan_forward(step.after.checkers_mask()))
    moved = {step.target}
    if step.castles:
        moved.add(chess.square(5 if step.target > step.origin else 3, chess.square_rank(step.origin)))
    hidden = sorted(checkers - moved)
    replies = step.after.legal_moves.count()
    single, found = len(checkers) == 1, bool(hidden)
    yield {
        "double": True if not single else None,
        "checker": hidden[0] if found and single else None,
        "king": step.after.king(not step.mover) if single and not found else None,
        "plain": None if found or not single else step.target,
        "one": replies if replies == 1 and single and not found else None,
        "few": replies if replies == 2 and single and not found else None,
    }


@move_concept(
    "checks",
    detect=lambda step: (v for v in _checks(step) if v["checker"] is None and v["double"] is None),
    weight=5.0,
).says(
    "~give check( from {plain:square})?",
    "~come with check",
    "~check {king}( from {plain:square})?",
    "~give check and ~leave only {one:count} legal reply",
    "~be check and ~leave only {few:count} legal replies",
    "||~(give|be|come with|arrive with) (a )?check",
    "||~(put|place) {king} (in|under) check",
    "||~leave (just |only )?{few:count} legal (reply|replies|answers?)",
)
def _gives_check(
    context: Context,
    checker: int | None = None,
    king: int | None = None,
    few: int | None = None,
    one: int | None = None,
    plain: int | None = None,
) -> bool:
    checkers = set(context.board.checkers())
    hidden = checkers - {context.to}
    right_king = king is None or king == context.board.king(context.board.turn)
    wanted = few if few is not None else one
    counted = wanted is None or context.board.legal_moves.count() == wanted
    return bool(checkers) and (checker is None or checker in hidden) and right_king and counted


move_concept(
    "discovers check",
    detect=lambda step: (v for v in _checks(step) if v["checker"] is not None),
    holds=lambda context, checker=None: (
        bool(set(context.board.checkers()) - {context.to})
        and (checker is None or checker in set(context.board.checkers()) - {context.to})
    ),
    weight=5.5,
).says(
    "~give (|a )discovered check from {checker}",
    "~uncover a check by {checker}",
    "||~give (a )?discovered check",
)
move_concept(
    "double check",
    detect=lambda step: (v for v in _checks(step) if v["double"]),
    holds=lambda context: len(context.board.checkers()) == 2,
    weight=6.0,
).says("~(give||be) (|a )double check")


def _threatens_mate(step: Step) -> Iterator[Values]:
    passed = passed_turn(step.after)
    if passed is not None and not step.after.is_game_over() and (moves := mating_moves(passed)):
        yield {"foe": bare(passed, moves[0])}


@move_concept("threatens mate", detect=_threatens_mate, weight=8.0).says(
    "~threaten mate with {foe}( next)?",
    "~(threaten|carry the threat of|prepare mate with) {foe:mate}",
    "||~prepare mate with {foe}",
)
def _would_mate(context: Context, foe: Foe) -> bool:
    board = other_turn(context.board)
    return board is not None and foe(board) in predicates.mating_moves(board)


move_concept("threatens a move", holds=is_threat).says(
    "||~(threaten|carry the threat of) (to play )?{foe}( next)?"
)

move_concept("quiet move", holds=lambda context: not _noisy(context), weight=0.3).says(
    "~(be|look) (quiet||calm|a quiet move|a calm move)"
)
move_concept("forcing move", holds=lambda context: _noisy(context), weight=0.3).says(
    "~be forcing",
    "~be a forcing (move||try|line)",
)
move_concept("only move", holds=lambda context: context.before.legal_moves.count() == 1).says(
    "~be (the only legal move|forced||the sole legal reply|the only legal reply)"
)


def _noisy(context: Context) -> bool:
    return context.victim is not None or context.board.is_check() or bool(context.move.promotion)
