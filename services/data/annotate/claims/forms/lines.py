"""Claims about lines of play: that they can be played as written and are the engine's."""

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.token import Token

_THEN = "(then |now |simply |just |at once |calmly )?"


def plays(scene: Scene, line: Token, first: Token | None = None) -> bool:
    """The line can be played as written, is the engine's, and begins with a move of the side named."""
    moves = scene.play(line)
    scene.evidence()
    starter = scene.start.turn ^ (len(moves) - len(line.moves)) % 2
    return first is None or scene.side(first) == bool(starter)


@says(
    "(after|following|then|now|next|later|and then|with|on|in view of|because of) {l}",
    "{l}",
    "{l} ~(follow|come|happen|be played|be the point|be the answer|be the reply|be the reason)( then| next)?",
    "«s\\d+» ~(see|get|expect) {l}",
    "(the |this )?(main line|line|continuation|play|game|sequence|variation|rest|calculation) ~(run|go|"
    "continue|be) {l}",
    "«i\\d+» ~(go|continue|run) {l}",
    "(the )?(best|right|strongest|critical|natural|main|simplest|most testing|correct) "
    "(reply|answer|defence|response|continuation|follow-up) ~be {l}",
    "{l} ~be (the )?(best|right|critical) (reply|answer)",
    "the (reply|answer|response|refutation|problem|trouble|point|snag|catch|drawback|reason) ~be {l}",
    "(best|critical|expected) ~be {l}",
)
def line_is_played(scene: Scene, line: Token | None = None, **named: Token) -> bool:
    return plays(scene, line or named["l"])


@says(
    _THEN + "~(reply|answer|respond|continue|play|go|come back|hit back|defend) (back )?(with )?{l}",
    _THEN + "~(meet|answer) (this|that|it|the threat) (with|by) {l}",
    "(can|could|will|would|must|should) (reply|answer|continue|play|defend)( with)? {l}",
    "~have {l}",
    subject="side",
)
def side_plays(scene: Scene, side: Token, l: Token) -> bool:  # noqa: E741 -- slots are named by their kind
    return plays(scene, l, side)


@says(
    "~(run into|meet|allow|invite|provoke|lead to|fail to|permit|be met by|be answered by|be refuted by|"
    "run up against|lose to|fall to) "
    "{l}",
    subject="move",
)
def move_meets(scene: Scene, move: Token, l: Token) -> bool:  # noqa: E741
    scene.step(move)
    return plays(scene, l)


@says(
    "if {s} (passes|passed|pass|does nothing|do nothing|waits|wait), {l}( (comes|follows|would follow))?",
    "left (alone|to (himself|itself|themselves)), {t:s} ~play {l}",
    "{t:s} ~threaten {l}",
    "{o} threat ~be {l}",
    "the threat ~be {l}",
    "there ~be a threat: {l}",
    "(given|with) a free move, {t:s} (would )?~play {l}",
    "{t:s} ~(want|intend|plan|mean) (to play )?{l}",
)
def threat_is(
    scene: Scene,
    l: Token,  # noqa: E741 -- slots are named by their kind
    s: Token | None = None,
    t: Token | None = None,
    o: Token | None = None,
) -> bool:
    passed = scene.passed
    scene.go(passed)
    passive = s is None or scene.side(s) == scene.mover
    active = all(scene.side(token) == passed.turn for token in (t, o) if token)
    return passive and active and plays(scene, l)
