"""Claims that compare moves: the engine's scores decide."""

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.scores import AS_GOOD, BANDS, best_value, value_of
from services.data.annotate.claims.token import Token


@says(
    "~be (clearly |simply |much |a little |slightly |just )?(weaker|worse|less good|less convincing|"
    "less precise|less accurate|inferior)"
    "( than {n:m})?( here)?",
    "~be not (quite )?(as good|as strong|as precise|enough)( as {n:m})?( here)?",
    "~(promise|offer|achieve|bring|give «s\\d+») (much |a little |slightly )?less( than {n:m})?",
    "~fall (well |somewhat |a little )?short( of {n:m})?",
    subject="move",
)
def move_is_weaker(scene: Scene, move: Token, n: Token | None = None) -> bool:
    return value_of(scene, move) < (value_of(scene, n) if n else best_value(scene))


@says(
    "~be (just |about |almost |practically |nearly )?as good( as {n:m})?",
    "~(be|come) (a )?close (second|call|thing)",
    "~be (every bit|just) as (good|playable)",
    "~be (an )?equally good( choice| move)?",
    "~be (fully |perfectly |just as |entirely )?playable( too| as well)?",
    "~(lose|give up|give away|cost) (almost |practically |next to )?nothing",
    subject="move",
)
def move_is_as_good(scene: Scene, move: Token, n: Token | None = None) -> bool:
    return abs(value_of(scene, move) - (value_of(scene, n) if n else best_value(scene))) <= AS_GOOD


@says(
    "there ~be (little|nothing) to choose between {a:m} and {b:m}",
)
def moves_are_equal(scene: Scene, a: Token, b: Token) -> bool:
    return abs(value_of(scene, a) - value_of(scene, b)) <= AS_GOOD


@says(
    "~(give away|give up|let slip|squander|spoil|hand back|surrender|waste) (part|some|a part|a slice|"
    "much|most) of (the|«o\\d+») (advantage|edge|plus)",
    subject="move",
)
def gives_up_part(scene: Scene, move: Token) -> bool:
    value, best = value_of(scene, move), best_value(scene)
    return best >= BANDS["slightly better"][0] and value < best and value >= BANDS["equal"][0]


@says(
    "~(give away|give up|let slip|squander|spoil|throw away|surrender|waste) (all of |all |"
    "the whole of )?(the|«o\\d+») (advantage|edge|plus)",
    "~let (all of |all )?(the|«o\\d+») (advantage|edge|plus) (slip|go|evaporate)",
    "~let {s} equalise",
    "~allow {s} to equalise",
    subject="move",
)
def gives_up_all(scene: Scene, move: Token, s: Token | None = None) -> bool:
    value, best = value_of(scene, move), best_value(scene)
    other = s is None or scene.side(s) != scene.mover
    return other and best >= BANDS["slightly better"][0] and value < BANDS["equal"][1]


@says(
    "~turn the tables( on {t:s})?",
    "~(hand|give|pass|leave) {s} (the|an) (advantage|initiative|edge|better game|upper hand)",
    "~(hand|give|pass|concede) the (advantage|edge) to {s}",
    "~let {s} take over",
    "~play into {o} hands",
    "~leave {s} with the better game",
    subject="move",
)
def hands_over(
    scene: Scene, move: Token, s: Token | None = None, t: Token | None = None, o: Token | None = None
) -> bool:
    other = all(scene.side(token) != scene.mover for token in (s, o) if token)
    own = t is None or scene.side(t) == scene.mover
    return (
        other
        and own
        and value_of(scene, move) <= BANDS["equal"][0]
        and value_of(scene, move) < best_value(scene)
    )


@says("~(lose|lose outright|lose on the spot)", "simply ~lose", "~be a (blunder|losing move)", subject="move")
def loses_the_game(scene: Scene, move: Token) -> bool:
    return value_of(scene, move) <= -BANDS["winning"][0] and value_of(scene, move) < best_value(scene)


@says(
    "~(make|only make) (things|matters) worse",
    "~(deepen|add to) the trouble",
    subject="move",
)
def makes_it_worse(scene: Scene, move: Token) -> bool:
    return best_value(scene) <= BANDS["equal"][0] and value_of(scene, move) < best_value(scene)


@says("~(win|be winning|also win|still win|win too|win as well)", "~keep the win( in hand)?", subject="move")
def move_wins_the_game(scene: Scene, move: Token) -> bool:
    return value_of(scene, move) >= BANDS["winning"][0]


@says(
    "~(keep|hold|maintain) (the|«o\\d+») (advantage|edge|plus)",
    "~keep {s} better",
    "~leave {s} better",
    subject="move",
)
def keeps_advantage(scene: Scene, move: Token, s: Token | None = None) -> bool:
    right_side = s is None or scene.side(s) == scene.mover
    return right_side and value_of(scene, move) >= BANDS["slightly better"][0]


@says(
    "~(keep|hold|maintain) (the |«o\\d+» )?(balance|equality)",
    subject="move",
)
def keeps_balance(scene: Scene, move: Token) -> bool:
    low, high = BANDS["equal"]
    return low <= value_of(scene, move) < high


@says(
    "~put up (the )?(most|best|stiffest|more|stiffer) (resistance|defence)",
    "~be (the )?most stubborn( defence| move)?",
    "~(hold out|last) (the )?longest",
    "~limit the damage( best)?",
    subject="move",
)
def resists_best(scene: Scene, move: Token) -> bool:
    return best_value(scene) <= BANDS["equal"][0] and value_of(scene, move) == best_value(scene)


@says(
    "~be (clearly |simply |a little |slightly |much )?(better|stronger|more precise|"
    "more convincing) than {n:m}",
    "~(promise|offer|bring) more than {n:m}",
    subject="move",
)
def move_is_stronger(scene: Scene, move: Token, n: Token) -> bool:
    return value_of(scene, move) > value_of(scene, n)


@says("~(win|mate) by force", subject="move")
def move_mates_by_force(scene: Scene, move: Token) -> bool:
    line = scene.study.line_of(scene.candidate(move).uci())
    return line is not None and line.evaluation.mate is not None and line.evaluation.mate > 0
