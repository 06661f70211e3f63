"""Which moves are candidates, how they compare, and which is chosen: the engine's scores decide."""

from collections.abc import Sequence

import chess

from commentary.concept import of_topic
from commentary.concepts.standings import BOUNDS_CP
from commentary.context import Context, Unknown

concept = of_topic("choice")
move_concept = of_topic("choice", about_moves=True)
AS_GOOD_CP = 30
"""Centipawns within which two moves are called equally good."""

_SLIGHT, _CLEAR, _LARGE, _DECISIVE = BOUNDS_CP


@move_concept("best move").says(
    "~be (the|{us:owner}|clearly the|simply the) (best|right|strongest) (move|choice|continuation)",
    "~be (best|strongest|clearly best||right|simply best)",
    "~stand out",
    "||~be (the |{us:owner} )?(move|choice)",
)
def _is_best(context: Context) -> bool:
    return _own(context) == context.best_value and context.chosen in (None, context.move)


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


def _own(context: Context) -> int:
    """The score of the move itself."""
    return context.value(context.move)


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
    than = context.best_value if other is None else context.value(other)
    return _own(context) < than


@move_concept("as good").says(
    "~be (just as good|every bit as good|equally good|fully playable||just as playable|perfectly playable)( too| as well)?",
    "~be a close second",
    "~give away (next to nothing||almost nothing|practically nothing|nothing)",
    "~be (just |about |almost |practically |nearly )?as good as {other:candidate}",
    "||~(be|come) (a )?close (second|call|thing)",
)
def _as_good(context: Context, other: chess.Move | None = None) -> bool:
    than = context.best_value if other is None else context.value(other)
    return abs(_own(context) - than) <= AS_GOOD_CP


concept("equal moves", holds=lambda c, one, other: abs(c.value(one) - c.value(other)) <= AS_GOOD_CP).says(
    "there is (little||nothing) to choose between {one:candidate} and {other:candidate}"
)
move_concept("stronger", holds=lambda c, other: _own(c) > c.value(other)).says(
    "~be (better|stronger||more precise|more convincing|clearly better|clearly stronger) than {other:candidate}",
    "||~(promise|offer|bring) more than {other:candidate}",
)
move_concept(
    "gives up part of the advantage",
    holds=lambda c: c.best_value >= _SLIGHT and -_SLIGHT <= _own(c) < c.best_value,
).says(
    "~(give away|let slip||hand back|surrender|squander|give up|spoil) part of (the||{us:owner}) advantage",
    "~hand back some of (the||{us:owner}) advantage",
    "||~(give away|give up|let slip|squander|spoil|hand back|surrender|waste) (part|some|much|most) of (the|{us:owner}) (advantage|edge|plus)",
)
move_concept("gives up the advantage", holds=lambda c: c.best_value >= _SLIGHT > _own(c)).says(
    "~(give away|throw away all of||give up|squander|throw away|spoil) the advantage",
    "~let the advantage slip",
    "~(let {them:object} equalise|allow {them:object} to equalise)",
    "||~(give away|give up|let slip|squander|spoil|throw away|surrender|waste) (all of |all |the whole of )?(the|{us:owner}) (advantage|edge|plus)",
)
move_concept("hands over the advantage", holds=lambda c: _own(c) < c.best_value and _own(c) <= -_SLIGHT).says(
    "~(hand|give) {them:object} the (advantage|upper hand||initiative|edge|better game)",
    "~hand the advantage to {them:object}",
    "~(turn the tables|let {them:object} take over|play into {them:owner} hands)",
    "~leave {them:object} with the better game",
)
move_concept(
    "loses the game", holds=lambda c: _own(c) < c.best_value and _own(c) <= -_DECISIVE, weight=2.0
).says(
    "~(lose|lose outright)",
    "~be a (blunder||losing move)",
    "||~(lose on the spot)",
    "||simply ~lose",
)
move_concept("makes it worse", holds=lambda c: c.best_value <= -_SLIGHT and _own(c) < c.best_value).says(
    "~make (matters|things) worse",
    "||~only make (matters|things) worse",
    "||~(deepen|add to) the trouble",
)
move_concept("wins the game", holds=lambda c: _own(c) >= _DECISIVE).says(
    "~(win as well|win too||win|be winning)",
    "(also|still) ~win",
    "~keep the win in hand",
)
move_concept("keeps the advantage", holds=lambda c: _own(c) >= _SLIGHT).says(
    "~(keep|maintain||hold) the advantage",
    "~(keep|leave) {us:object} better",
    "||~(keep|hold|maintain) (the|{us:owner}) (advantage|edge|plus)",
)
move_concept("keeps the balance", holds=lambda c: -_SLIGHT <= _own(c) < _SLIGHT).says(
    "~(keep|hold||maintain) the balance",
    "~keep equality",
    "||~(keep|hold|maintain) (the |{us:owner} )?(balance|equality)",
)
move_concept("resists best", holds=lambda c: c.best_value <= -_LARGE and _own(c) == c.best_value).says(
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
    line = context.study.line_of(context.move.uci())
    if line is None:
        raise Unknown(context.move.uci())
    return line.score.mate or 0
