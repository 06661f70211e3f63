"""Claims about who stands better: the engine's score for what is spoken of decides."""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.scores import score_for
from services.data.annotate.claims.sight import mating_moves
from services.data.annotate.claims.token import Token

_SLIGHT = "(slightly|a little|a shade|a touch|marginally|a bit)"
_MUCH = "(much|far|a lot|clearly and lastingly|considerably)"


@says(
    f"~(be|stand|remain|look|stay|keep) (still |just |only )?{_SLIGHT} better( off)?( placed)?( again)?",
    "~(have|keep|hold|retain|get|claim) (just |only )?(a|the) (slight|small|tiny|minimal|modest|little|"
    "slightest) (edge|plus|advantage|pull|initiative)",
    subject="side",
)
def is_slightly_better(scene: Scene, side: Token) -> bool:
    return score_for(scene, scene.side(side)).within("slightly better")


@says(
    "~(be|stand|remain|look|stay) (still |clearly |comfortably |simply |definitely |"
    "just )?better( off)?( placed)?",
    "~(have|keep|hold|retain|get|claim) (a|the) (clear|comfortable|pleasant|definite|real|solid|"
    "healthy) (edge|plus|advantage|pull)",
    "~(have|hold|keep) the (upper hand|better (game|position|chances|side of it))",
    subject="side",
)
def is_better(scene: Scene, side: Token) -> bool:
    return score_for(scene, scene.side(side)).within("better")


@says(
    f"~(be|stand|remain|look|stay) (still |simply |just )?{_MUCH} better( off)?",
    "~(have|keep|hold|retain|get) (a|the) (big|large|great|serious|major|huge) (edge|plus|advantage)",
    "~be (close to|not far from|on the way to|nearly|almost|practically) winning",
    subject="side",
)
def is_much_better(scene: Scene, side: Token) -> bool:
    return score_for(scene, scene.side(side)).within("much better")


@says(
    "~be (still |simply |just |already |completely |clearly |objectively )?winning",
    "~(have|keep|hold|retain|get|reach) (a|the) (completely |clearly |technically )?(winning|won|"
    "decisive) (position|game|advantage|ending|endgame)",
    subject="side",
)
def is_winning(scene: Scene, side: Token) -> bool:
    return score_for(scene, scene.side(side)).within("winning")


@says(
    f"~(be|stand|remain|look) (still |just |only )?{_SLIGHT} worse( off)?",
    subject="side",
)
def is_slightly_worse(scene: Scene, side: Token) -> bool:
    return score_for(scene, not scene.side(side)).within("slightly better")


@says(
    "~(be|stand|remain|look) (still |clearly |simply |just )?worse( off)?",
    "~be on the (defensive|back foot)",
    subject="side",
)
def is_worse(scene: Scene, side: Token) -> bool:
    return score_for(scene, not scene.side(side)).within("better")


@says(
    f"~(be|stand|remain|look) (still |simply |just )?{_MUCH} worse( off)?",
    "~be in (serious|deep|real|big|grave) (trouble|difficulties)",
    subject="side",
)
def is_much_worse(scene: Scene, side: Token) -> bool:
    return score_for(scene, not scene.side(side)).within("much better")


@says(
    "~be (still |simply |just |already |completely |clearly |objectively |hopelessly )?(lost|losing)",
    "~(have|reach) (a|the) (completely |clearly |objectively )?lost (position|game|ending|endgame)",
    "~be beyond (saving|help)",
    subject="side",
)
def is_lost(scene: Scene, side: Token) -> bool:
    return score_for(scene, not scene.side(side)).within("winning")


@says(
    "(the |this )?(position|game|result|outcome|balance|chances|assessment|upshot|ending|endgame|"
    "struggle|fight) "
    "~(be|remain|stay|look|seem) (still |about |roughly |more or less |approximately |"
    "dynamically )?(equal|level|balanced|even|in balance)",
    "it ~(be|remain|stay|look|seem) (still |about |roughly |more or less |approximately )?(equal|level|"
    "balanced|even)",
    "(nobody|neither side) ~(be|stand|have) (better|an advantage|an edge|anything special)",
    "with (roughly |about |approximately )?(equal|even|balanced) (chances|play|game)",
    "with equality",
    "there ~be (nothing in it|little in it|not much in it)",
)
def is_equal(scene: Scene) -> bool:
    return score_for(scene, scene.mover).within("equal")


_DEGREES = {
    "slight": "slightly better",
    "small": "slightly better",
    "modest": "slightly better",
    "clear": "better",
    "comfortable": "better",
    "definite": "better",
    "big": "much better",
    "large": "much better",
    "serious": "much better",
    "decisive": "winning",
    "winning": "winning",
}


@says(
    "an? (?P<w>slight|small|modest|clear|comfortable|definite|big|large|serious|decisive|winning) "
    "(edge|advantage|plus) for {s}",
)
def advantage_for(scene: Scene, w: str, s: Token) -> bool:
    return score_for(scene, scene.side(s)).within(_DEGREES[w])


@says("(there|it) ~be (a )?(forced )?mate in {n}( here)?")
def mate_in(scene: Scene, n: str) -> bool:
    return _mates_in(scene, scene.start.turn, count_of(n))


@says("~(have|force|see) (a )?(forced )?mate in {n}", subject="side")
def side_mates_in(scene: Scene, side: Token, n: str) -> bool:
    return _mates_in(scene, scene.side(side), count_of(n))


def _mates_in(scene: Scene, side: chess.Color, moves: int) -> bool:
    """A mate in one is on the board; a longer one is the engine's word."""
    if moves == 1:
        return side == scene.board.turn and bool(mating_moves(scene.board))
    evaluation = scene.evidence().evaluation
    sign = 1 if side == scene.start.turn else -1
    return evaluation.mate is not None and evaluation.mate * sign == moves
