"""Which moves are candidates, how they compare, and which is chosen: the engine's scores decide."""

from collections.abc import Sequence

import chess

from commentary.concept import of_topic
from commentary.concepts.standings import BOUNDS_CP
from commentary.context import Context, Unknown
from commentary.study import Score

concept = of_topic("choice")
move_concept = of_topic("choice", about_moves=True)
AS_GOOD_CP = 30
"""Centipawns within which two moves are called equally good."""

_SLIGHT, _CLEAR, _LARGE, _DECISIVE = BOUNDS_CP


@move_concept("best move").says(
    "~be (the|clearly the|simply the||{us:owner}) (best|right|strongest) (move|choice|continuation)",
    "~be {us:owner} best (move|choice)",
    "~be (best|strongest|clearly best||right|simply best)",
    "~stand out",
    "||~be (the |{us:owner} )?(move|choice)",
)
def _is_best(context: Context) -> bool:
    return _score(context).rank == context.best_score.rank and context.chosen in (None, context.move)


@concept("choice").says(
    "that leaves {move}",
    "(the|{us:owner}) choice (falls on|is) {move}",
    "the (best|right|strongest) move is {move}",
    "notebook|(choice|decision): {move}",
    "{us:side} ~(choose|play|go for|go with||settle on) {move}",
    "so {move}",
    "so the move is {move}",
    "{move} it is",
    "annotator|{us:side} should choose {move}",
    "||{us:side} (should|will) (choose|play|go with|go for|settle on) {move}",
    "||(this|that) ~leave {move}",
    "||(the |{us:owner} )?(choice|move|decision)( ~be| ~fall on|:) {move}",
    "||(so|hence) {move}",
)
def _chosen(context: Context, move: chess.Move) -> bool:
    if context.chosen is None:
        raise Unknown("no move is chosen")
    return move == context.chosen


@concept("candidates", weight=0.1).says(
    "the (candidates|main options|serious candidates|moves to consider) are {moves:candidates}",
    "(candidates|options): {moves:candidates}",
    "{us:side} ~(consider|look at||compare|have a choice of) {moves:candidates}",
    "{moves:candidates} (come to mind|deserve a look|suggest themselves|are worth a look)",
    "the choice ~be between {moves:candidates}",
    "||((the|three|two|four|{us:owner}) )?(main |serious )?(candidates|options|moves to consider)( ~be|:) {moves:candidates}",
    "||{us:side} ~have (several|some|a few|two|three|four|five) (possible |potential |candidate )?(moves|options)( to (evaluate|consider))?(:)? {moves:candidates}",
    "||(the )?(given|available|possible|candidate|suggested) (options|moves)( ~be(:)?|:) {moves:candidates}",
    "||(another|one) (idea|option|try|move) ~be {moves:candidates}",
    "||there ~be (also )?{moves:candidates}",
    "||{us:side} (could|can) (play|try|consider) {moves:candidates}",
    "||can {us:side} play {moves:candidates}",
    "||(and )?(what|how) about {moves:candidates}",
    "||(and|first) {moves:candidates}",
    "||{moves:candidates} next",
)
def _are_candidates(context: Context, moves: Sequence[chess.Move]) -> bool:
    """Legal moves; of those that a study does not look at nobody can say whether they are candidates."""
    if context.study.lines and any(context.study.line_of(move.uci()) is None for move in moves):
        raise Unknown("a move without a line")
    return 0 < len(set(moves)) == len(moves)


move_concept("candidate", holds=lambda context: True, weight=0.1).says(
    "~(come to mind|be an option|be possible|deserve a look)",
    "~(be tempting|look tempting|catch the eye)",
    "||~(be worth a look|make sense|have a point|suggest itself|look natural)",
)


@move_concept("opinion", weight=0.1).says(
    "||~(look|seem|appear) (quite |rather |very )?(promising|reasonable|good|interesting|attractive|viable|risky)",
)
def _is_an_opinion(context: Context) -> bool:
    raise Unknown("an opinion")


def _score(context: Context) -> Score:
    return context.score(context.move)


def _is_worse(context: Context) -> bool:
    return _score(context).rank < context.best_score.rank


def _are_equally_good(first: Score, second: Score) -> bool:
    """Whether moves are called equally good: a mate only if the other mates as soon."""
    return first.mate == second.mate and abs(first.capped - second.capped) <= AS_GOOD_CP


@move_concept("weaker").says(
    "~be (weaker|a little weaker|slightly weaker|less precise||worse|less good|inferior|less accurate) than {other:candidate}",
    "~be not (quite |)as (good||strong|precise) as {other:candidate}",
    "~fall (|a little ||well |somewhat )short of {other:candidate}",
    "||~be (clearly |simply |much |a little |slightly |just )?(weaker|worse|less good|less precise|inferior)( here)?",
    "||~be not (quite )?(as good|as strong|as precise|enough)( here)?",
    "||~(promise|offer|achieve|bring) (much |a little |slightly )?less( than {other:candidate})?",
    "||~fall (well |somewhat |a little )?short",
)
def _weaker(context: Context, other: chess.Move | None = None) -> bool:
    than = context.best_score if other is None else context.score(other)
    return _score(context).rank < than.rank


@move_concept("as good").says(
    "~be (just as good|every bit as good|equally good|fully playable||just as playable|perfectly playable)( too| as well)?",
    "~be a close second",
    "~give away (next to nothing||almost nothing|practically nothing|nothing)",
    "~be (just |about |almost |practically |nearly )?as good as {other:candidate}",
    "||~(be|come) (a )?close (second|call|thing)",
)
def _as_good(context: Context, other: chess.Move | None = None) -> bool:
    return _are_equally_good(_score(context), context.best_score if other is None else context.score(other))


concept("equal moves", holds=lambda c, one, other: _are_equally_good(c.score(one), c.score(other))).says(
    "there is (little||nothing) to choose between {one:candidate} and {other:candidate}"
)
move_concept("stronger", holds=lambda c, other: _score(c).rank > c.score(other).rank).says(
    "~be (better|stronger||more precise|more convincing|clearly better|clearly stronger) than {other:candidate}",
    "||~(promise|offer|bring) more than {other:candidate}",
)
move_concept(
    "gives up part of the advantage",
    holds=lambda c: _is_worse(c) and c.best_score.capped >= _SLIGHT and _score(c).capped >= -_SLIGHT,
).says(
    "~(give away|let slip||hand back|surrender|squander|give up|spoil) part of (the||{us:owner}) advantage",
    "~hand back some of (the||{us:owner}) advantage",
    "||~(give away|give up|let slip|squander|spoil|hand back|surrender|waste) (part|some|much|most) of (the|{us:owner}) (advantage|edge|plus)",
)
move_concept(
    "gives up the advantage", holds=lambda c: c.best_score.capped >= _SLIGHT > _score(c).capped
).says(
    "~(give away|throw away all of||give up|squander|throw away|spoil) the advantage",
    "~let the advantage slip",
    "~(let {them:object} equalise|allow {them:object} to equalise)",
    "||~(give away|give up|let slip|squander|spoil|throw away|surrender|waste) (all of |all |the whole of )?(the|{us:owner}) (advantage|edge|plus)",
)
move_concept("hands over the advantage", holds=lambda c: _is_worse(c) and _score(c).capped <= -_SLIGHT).says(
    "~(hand|give) {them:object} the (advantage|upper hand||initiative|edge|better game)",
    "~hand the advantage to {them:object}",
    "~(let {them:object} take over|play into {them:owner} hands)",
    "~leave {them:object} with the better game",
)
move_concept(
    "turns the tables", holds=lambda c: c.best_score.capped >= _SLIGHT and _score(c).capped <= -_SLIGHT
).says(
    "||~turn the tables",
)
move_concept(
    "loses the game", holds=lambda c: _is_worse(c) and _score(c).capped <= -_DECISIVE, weight=2.0
).says(
    "~(lose|lose outright)",
    "~be a (blunder||losing move)",
    "||~(lose on the spot)",
    "||simply ~lose",
)
move_concept("makes it worse", holds=lambda c: _is_worse(c) and c.best_score.capped <= -_SLIGHT).says(
    "~make (matters|things) worse",
    "||~only make (matters|things) worse",
    "||~(deepen|add to) the trouble",
)
move_concept("wins the game", holds=lambda c: _score(c).capped >= _DECISIVE).says(
    "~(be winning||win)",
    "~keep the win in hand",
)
move_concept("wins too", holds=lambda c: _score(c).capped >= _DECISIVE).says(
    "~(win as well|win too)",
    "(also|still) ~win",
)
move_concept("slower mate", holds=lambda c, other: 0 < (c.score(other).mate or 0) < _mate_of(c)).says(
    "~be (slower|a slower mate) than {other:candidate}",
    "~(mate more slowly|take longer) than {other:candidate}",
)
move_concept("keeps the advantage", holds=lambda c: _score(c).capped >= _SLIGHT).says(
    "~(keep|maintain||hold) the advantage",
    "~(keep|leave) {us:object} better",
    "||~(keep|hold|maintain) (the|{us:owner}) (advantage|edge|plus)",
)
move_concept("keeps the balance", holds=lambda c: -_SLIGHT <= _score(c).capped < _SLIGHT).says(
    "~(keep|hold||maintain) the balance",
    "~keep equality",
    "||~(keep|hold|maintain) (the |{us:owner} )?(balance|equality)",
)
move_concept("resists best", holds=lambda c: c.best_score.capped <= -_LARGE and not _is_worse(c)).says(
    "~put up the (best|stiffest||most) resistance",
    "~limit the damage( best)?",
    "~be the most stubborn (defence||move)",
    "~(hold out|last) (the )?longest",
)
move_concept("mates by force", holds=lambda c: _mate_of(c) > 0, weight=3.0).says("~(win|mate) by force")
move_concept("allows mate", holds=lambda c: _mate_of(c) < 0, weight=3.0).says(
    "~(allow|run into||permit) mate",
    "||~be (mated|refuted by mate)",
)


def _mate_of(context: Context) -> int:
    return _score(context).mate or 0
