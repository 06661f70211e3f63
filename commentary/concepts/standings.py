"""Who stands better: the engine's score for what is spoken of decides."""

from functools import partial
from math import inf

from commentary.concept import of_topic
from commentary.context import Context
from commentary.predicates import mates_on
from commentary.study import Score

concept = of_topic("standing")

BOUNDS_CP = (45, 110, 230, 450)
"""Where each degree of an advantage begins: slight, clear, large, decisive. Half open at the upper end."""

DEGREES = ("equal", "slightly better", "better", "much better", "winning")
_SLIGHT = "(slightly|a little||a shade|a touch|marginally|a bit)"
_MUCH = "(much||far|a lot|considerably)"
_WORDS = {
    "slight": 1,
    "small": 1,
    "modest": 1,
    "clear": 2,
    "comfortable": 2,
    "definite": 2,
    "big": 3,
    "large": 3,
    "serious": 3,
    "decisive": 4,
    "winning": 4,
}


def degree(score: Score) -> int:
    """How much better the side stands that a score is for: -4 to 4.

    >>> [degree(Score(cp=cp)) for cp in (60, -300, 44)]
    [1, -3, 0]
    """
    size = sum(abs(score.value) >= bound for bound in BOUNDS_CP)
    return size if score.value > 0 else -size


def word_for(advantage: int, number: int) -> str:
    """One of the words for a degree of advantage."""
    words = [word for word, degree_ in _WORDS.items() if degree_ == abs(advantage)]
    return words[number % len(words)]


def _has_degree(degree_: int, context: Context, side: bool) -> bool:
    return (0, *BOUNDS_CP, inf)[degree_] <= context.score_for(side) < (0, *BOUNDS_CP, inf)[degree_ + 1]


def _is_equal(context: Context) -> bool:
    return abs(context.score_for(context.mover)) < BOUNDS_CP[0]


concept("slightly better", holds=partial(_has_degree, 1)).says(
    "{side} ~(be||stand|remain|look|stay|keep) (still |just |only )?"
    + _SLIGHT
    + " better( off| placed)?( again)?",
    "{side} ~have a (small|slight|modest||tiny|minimal|little) (edge|plus|advantage||pull)",
    "{other:side} ~(be||stand|remain|look) (still |just |only )?slightly worse( off)?",
    "||{side} ~(keep|hold|retain|get|claim) (a|the) (slight|small|tiny|minimal|modest|little|slightest) (edge|plus|advantage|pull|initiative)",
    "||{other:side} ~(be|stand|remain|look) (a little|a shade|a touch|a bit) worse( off)?",
)
concept("better", holds=partial(_has_degree, 2)).says(
    "{side} ~(be||stand|remain|look|stay) (clearly|comfortably||definitely) better( off| placed)?",
    "{side} ~have (a clear advantage|the upper hand|the better game|a definite plus|a healthy advantage)",
    "{other:side} ~be (clearly worse||worse|on the defensive|on the back foot)",
    "||{side} ~(be|stand|remain|look|stay) (still |simply |just )?better( off| placed)?",
    "||{side} ~(have|keep|hold|retain|get|claim) (a|the) (clear|comfortable|pleasant|definite|real|solid|healthy) (edge|plus|advantage|pull)",
    "||{side} ~(have|hold|keep) the (upper hand|better (game|position|chances|side of it))",
    "||{other:side} ~(be|stand|remain|look) (still |clearly |simply |just )?worse( off)?",
)
concept("much better", holds=partial(_has_degree, 3)).says(
    "{side} ~(be||stand|remain|look|stay) (still |simply |just )?" + _MUCH + " better( off)?",
    "{side} ~have a (big|large||great|serious|major|huge) (advantage||edge|plus)",
    "{side} ~be (close to|not far from||on the way to|nearly|almost|practically) winning",
    "{other:side} ~be in (serious|real||deep|big|grave) (trouble||difficulties)",
    "{other:side} ~(be||stand|remain|look) much worse( off)?",
    "||{side} ~(keep|hold|retain|get) (a|the) (big|large|great|serious|major|huge) (edge|plus|advantage)",
)
concept("winning", holds=partial(_has_degree, 4)).says(
    "{side} ~be (|completely |simply ||still |just |already |clearly |objectively )winning",
    "{side} ~have a (winning position|decisive advantage||won position|winning advantage|won game|winning game)",
    "{other:side} ~be (lost|beyond saving||losing|beyond help|completely lost|hopelessly lost|simply lost)",
    "{other:side} ~have a lost (position||game|ending|endgame)",
    "||{side} ~(keep|hold|retain|get|reach|have) (a|the) (completely |clearly |technically )?(winning|won|decisive) (position|game|advantage|ending|endgame)",
)
concept("equal", holds=_is_equal).says(
    "(the position|the game) ~be (equal|level|balanced||even|in balance|roughly equal|about equal)",
    "the chances are (even||equal|balanced)",
    "(neither side ~have an edge|nobody ~stand better||neither side ~be better|nobody ~be better)",
    "there is (not much in it|little in it||nothing in it)",
    "it ~be about equal",
    "chances are (roughly||about) equal",
    "the position (stays|remains) (level|balanced||equal)",
    "||(the |this )?(position|game|balance|chances|assessment|ending|endgame|struggle|fight) ~(be|remain|stay|look|seem) (still |about |roughly |more or less |approximately |dynamically )?(equal|level|balanced|even|in balance)",
    "||it ~(be|remain|stay|look|seem) (still |about |roughly |more or less |approximately )?(equal|level|balanced|even)",
)
concept("with equality", holds=_is_equal).says(
    "with (equal chances|equality|balanced play|roughly equal play||even chances|roughly equal chances|an equal game)"
)
concept(
    "advantage for", holds=lambda c, word, side: word in _WORDS and _has_degree(_WORDS[word], c, side)
).says(
    "with a {word} advantage for {side:object}",
    "||(with )?(a|an) {word} (edge|advantage|plus) for {side:object}",
)


@concept("mate in", weight=3.0).says(
    "it ~be (|a forced )mate in {count}",
    "||(there|it) ~be (a )?(forced )?mate in {count}( here)?",
    "||{side} ~(have|force|see) (a )?(forced )?mate in {count}",
)
def _mates_in(context: Context, count: int, side: bool | None = None) -> bool:
    """A mate in one is on the board; a longer one is the engine's word."""
    colour = context.start.turn if side is None else side
    if count == 1:
        return colour == context.board.turn and bool(mates_on(context.board))
    mate = context.evidence().score.mate
    sign = 1 if colour == context.start.turn else -1
    return mate is not None and mate * sign == count
