"""Claims about which moves are candidates and which one is chosen."""

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.scores import best_value, value_of
from services.data.annotate.claims.token import Token


@says(
    "~be (clearly |simply )?(the |{o} )?(best|right|strongest) (move|choice|continuation)",
    "~be (clearly |simply )?(best|strongest|right)",
    "~be (the |{o} )?(move|choice)",
    "it ~be",
    "~stand out",
    subject="move",
)
def move_is_chosen(scene: Scene, move: Token, o: Token | None = None) -> bool:
    return scene.step(move)[1].uci() == scene.chosen and value_of(scene, move) == best_value(scene)


@says(
    "{s} ~(choose|play|go for|settle on|go with) {m}",
    "{s} should (choose|play) {m}",
    "(that|this) ~leave {m}",
    "(the |{o} )?(choice|move|decision)( ~be| ~fall on|:) {m}",
    "the (best|right|strongest) move ~be {m}",
    "(so|hence) {m}",
)
def choice_is(scene: Scene, m: Token, s: Token | None = None, o: Token | None = None) -> bool:
    return _is_mover(scene, s or o) and scene.step(m)[1].uci() == scene.chosen


def _is_mover(scene: Scene, side: Token | None) -> bool:
    return side is None or scene.side(side) == scene.mover


@says(
    "((the|three|two|four|{o}) )?(main |serious )?(candidates|options|moves to consider)( ~be|:) {ms:m*}",
    "{s} ~(consider|look at|compare|have a choice of) {ms:m*}",
    "{ms:m*} ~(come to mind|deserve a look|suggest themselves|be worth a look)",
    "there ~be (also )?{ms:m*}",
    "{s} could (play|try|consider) {ms:m*}",
    "can {s} play {ms:m*}",
    "the choice ~be between {ms:m*}",
    "(and )?what about {ms:m*}",
    "(and|first) {ms:m*}",
    "{ms:m*} next",
)
def are_candidates(scene: Scene, ms: list[Token], s: Token | None = None, o: Token | None = None) -> bool:
    return _is_mover(scene, s or o) and all(scene.step(token) for token in ms)


@says(
    "~(come to mind|catch the eye|look tempting|be tempting|be an option|be possible)",
    subject="move",
)
def is_a_candidate(scene: Scene, move: Token) -> bool:
    return bool(scene.step(move))
