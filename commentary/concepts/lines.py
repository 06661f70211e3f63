"""Lines of play: that they can be played as written and are the engine's, and what they bring."""

from collections import Counter

import chess

from commentary.concept import move_concept, of_topic
from commentary.concepts.material import describes, more
from commentary.context import Context, Unknown
from commentary.predicates import all_of, attackers
from commentary.slots import KINDS

concept = of_topic("lines")
_NOTHING: Counter[str] = Counter()
_ROOK = Counter({"rook": 1})
_MINORS = (Counter({"knight": 1}), Counter({"bishop": 1}))
_THEN = "(then |now |simply |just |at once |calmly )?"


def is_evident(context: Context) -> bool:
    """True where the line just played is the beginning of one of the engine's. Raises `Unknown` if it is
    not."""
    context.evidence()
    return True


def _is_line(context: Context, line: bool) -> bool:
    return is_evident(context)


concept("line", holds=_is_line, weight=0.3).says(
    "(after|following) {line}",
    "{line}",
    "(play continues|the play goes||the main line goes) {line}",
    "annotator|(the main line goes|the play goes) {line}",
    "it goes {line}",
    "then {line}",
    "the game goes on {line}",
    "{line} follows",
    "||(now|next|later|and then|with|on|in view of|because of) {line}",
    "||{line} ~(follow|come|happen|be played|be the point|be the answer|be the reply)( then| next)?",
    "||{line} ~be (the )?(best|right|critical) (reply|answer)",
    "||(the |this )?(main line|line|continuation|play|game|variation|rest) ~(run|go|go on|continue|be) {line}",
    "||it ~(go|continue|run) {line}",
    "||(the )?(best|right|strongest|critical|natural|main|simplest|correct) (reply|answer|defence|response|continuation) ~be {line}",
    "||the (reply|answer|response|refutation|problem|trouble|point|snag|catch|drawback|reason) ~be {line}",
    "||(best|critical|expected) ~be {line}",
)
concept("best reply", holds=_is_line, weight=0.3).says(
    "(the critical reply|the best reply|the right answer) is {line}",
    "best is {line}",
    "{line} is the (best reply|right answer|critical reply)",
)


@concept("line of a side", weight=0.3).says(
    "{side} ~(reply|answer||respond|continue) {line}",
    "{side} ~(have||continue with) {line}",
    "||{side} "
    + _THEN
    + "~(reply|answer|respond|continue|play|go|come back|hit back|defend) (back )?(with )?{line}",
    "||{side} " + _THEN + "~(meet|answer) (this|that|it|the threat) (with|by) {line}",
    "||{side} (can|could|will|would|must|should) (reply|answer|continue|play|defend)( with)? {line}",
)
def _side_plays(context: Context, line: bool, side: bool | None = None) -> bool:
    return side in (None, line) and is_evident(context)


concept("expected line", holds=_is_line, weight=0.3).says("{us:side} ~(see|expect||get) {line}")
move_concept("meets", holds=lambda context, line: is_evident(context), weight=0.3, topic="lines").says(
    "~(run into|allow||meet|invite|provoke|lead to|permit|be answered by|be refuted by|lose to|fall to) {line}",
    "~(fail to|be met by) {line}",
)
concept("threat", holds=_is_line, weight=2.0).says(
    "{them:side} ~threaten {line:threat}",
    "{them:owner} threat ~be {line:threat}",
    "the threat is {line:threat}",
    "left alone, {them:side} ~play {line:threat}",
    "with a free move, {them:side} would play {line:threat}",
    "if {us:side} ~(pass|do nothing|wait), {line:threat}( (comes|follows|would follow))?",
    "there is a threat: {line:threat}",
    "||given a free move, {them:side} (would )?~play {line:threat}",
    "||{them:side} ~(want|intend|plan|mean) (to play )?{line:threat}",
)


def brings(context: Context, side: chess.Color, won: Counter[str], lost: Counter[str]) -> bool:
    """Whether the moves so far bring `side` just this for just that; a knight may count as a bishop. Raises
    `Unknown` if no move was played, so the text speaks of play that nobody can see."""
    if not context.moves:
        raise Unknown("no line")
    change = {name: more(context.board, side, name) - more(context.start, side, name) for name in KINDS}
    gained = Counter({name: n for name, n in change.items() if n > 0})
    paid = Counter({name: -n for name, n in change.items() if n < 0})
    return describes(won, lost, gained, paid)


def _wins(
    context: Context,
    won: Counter[str],
    lost: Counter[str] = _NOTHING,
    line: bool | None = None,
    **slots: bool,
) -> bool:
    winner = slots.get("side", bool(line))
    return brings(context, winner, won, lost) and (line is None or is_evident(context))


concept("wins material", holds=_wins, weight=2.0).says(
    "{side} ~have won {won:units}",
    "{other:side} ~have (lost||dropped) {won:units}",
    "{side} ~(win|pick up||net|collect|gain|pocket|bag) {won:units}",
    "{other:side} ~(lose|drop||shed) {won:units}",
    "||{side} (just |simply |cleanly )~(win|pick up|net|collect|gain) {won:units}",
    "||{other:side} (just |simply |cleanly )~(lose|drop|shed) {won:units}",
)
concept("wins one for another", holds=_wins, weight=2.0).says(
    "{side} ~(win|get||net|gain) {won:units} for {lost:units}",
    "{side} ~have won {won:units} for {lost:units}",
    "||{other:side} ~(lose|drop|shed) {won:units} for {lost:units}",
    "||{other:side} ~have (lost|dropped) {won:units} for {lost:units}",
)
concept("gives one for another", holds=_wins).says(
    "{side} ~have (given||exchanged|traded) {lost:units} for {won:units}"
)
concept("line wins", holds=_wins, weight=2.0).says(
    "{line} wins {won:units} for {side:object}",
    "{line} ~(cost||costs) {other:object} {won:units}",
    "{line} brings {side:object} {won:units}",
    "||{line} ~(win|net|gain|pick up|collect) {won:units}( for {lost:units})?( for {side:object})?",
    "||{line} ~bring {side:object} {won:units} for {lost:units}",
    "||{line} ~cost {other:object} {won:units} for {lost:units}",
)


@concept("wins the exchange", weight=2.0).says(
    "{side} ~have won the exchange",
    "{other:side} ~(have lost the exchange|lose the exchange||drop the exchange)",
    "{side} ~win the exchange",
)
def _exchange(context: Context, side: bool) -> bool:
    return any(brings(context, side, _ROOK, minor) for minor in _MINORS)


def _costs(context: Context, lost: Counter[str] = _NOTHING, **slots: Counter[str]) -> bool:
    """Whether the engine's line that begins with the move comes to a point where just this is lost."""
    line = context.study.line_of(context.move.uci())
    if line is None:
        raise Unknown(context.move.uci())
    (won,) = slots.values()
    board, is_lost = context.board, False
    for uci in line.moves[len(context.moves) :]:
        context.board = context.board.copy(stack=False)
        context.board.push_uci(uci)
        is_lost = is_lost or brings(context, not context.mover, won, lost)
    context.board = board
    return is_lost


move_concept("loses material", holds=_costs, weight=2.0, topic="lines").says(
    "~(lose|drop) {only:units}",
    "~(lose|drop) {won:units} for {lost:units}",
)


@move_concept("loses the exchange", weight=2.0, topic="lines").says(
    "~lose the exchange", "||~drop the exchange"
)
def _costs_the_exchange(context: Context) -> bool:
    return any(_costs(context, minor, won=_ROOK) for minor in _MINORS)


@concept("queens come off").says(
    "the queens (come off|disappear|leave the board||are exchanged|are traded)( the board)?",
    "||queens (come off|disappear|leave the board|are exchanged|are traded)( the board)?",
)
def _queens_gone(context: Context) -> bool:
    """Whether both sides had a queen where the text began, and no queen is left. Raises `Unknown` if a queen
    can be taken, so that the queens may come off; or they came off before."""
    initial_queens = [all_of(context.start, side, "queen") for side in chess.COLORS]
    remaining_queens = [square for side in chess.COLORS for square in all_of(context.board, side, "queen")]
    if any(attackers(context.board, square) for square in remaining_queens) or not any(initial_queens):
        raise Unknown("an exchange of queens that is offered, or over")
    return all(initial_queens) and not remaining_queens


@concept("it is mate", weight=3.0).says(
    "(it||that) ~be (mate||checkmate)( on the spot)?",
    "{mated:side} ~be (mated||checkmated)",
    "||the game ~be over",
    "||{mated:side} ~get mated",
    "||{side} ~(give mate|give checkmate|deliver mate|deliver checkmate|mate|win by mate|finish by mate)",
)
def _is_mate(context: Context, mated: bool | None = None, side: bool | None = None) -> bool:
    board = context.board
    return board.is_checkmate() and mated in (None, board.turn) and side in (None, not board.turn)


concept("line mates", holds=lambda c, line: c.board.is_checkmate() and is_evident(c), weight=3.0).says(
    "{line} (is mate|ends in mate||mates|is checkmate)",
    "||{line} ~(be|end in|force) (checkmate|mate)",
)
