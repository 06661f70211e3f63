"""Phrases for what a line comes to."""

from services.data.annotate.standing import Standing

BETTER = {
    Standing.SLIGHTLY_BETTER: (
        "{side.is_} slightly better",
        "{side.is_} a shade better",
        "{side.has} a small edge",
        "{side.has} a slight plus",
        "{side.do[keep]} a slight pull",
        "{side.is_} a little better",
        "{other.is_} slightly worse",
        "{side.has} a modest advantage",
    ),
    Standing.BETTER: (
        "{side.is_} clearly better",
        "{side.has} a clear advantage",
        "{side.is_} comfortably better",
        "{side.has} the upper hand",
        "{side.has} the better game",
        "{other.is_} worse",
        "{side.has} a definite plus",
        "{other.is_} on the defensive",
        "{side.has} a healthy advantage",
    ),
    Standing.MUCH_BETTER: (
        "{side.is_} much better",
        "{side.has} a big advantage",
        "{side.is_} close to winning",
        "{other.is_} in serious trouble",
        "{side.has} a large advantage",
        "{side.is_} not far from winning",
        "{other.is_} much worse",
        "{other.is_} in real trouble",
    ),
    Standing.WINNING: (
        "{side.is_} winning",
        "{side.has} a winning position",
        "{other.is_} lost",
        "{side.is_} completely winning",
        "{side.has} a decisive advantage",
        "{other.has} a lost position",
        "{side.is_} simply winning",
        "{other.is_} beyond saving",
    ),
}
QUEENS_OFF = ("the queens come off", "the queens disappear", "the queens leave the board")
LINE_MATES = ("{line} is mate", "{line} ends in mate", "{line} mates", "{line} is checkmate")
LINE_WINS = (
    "{line} wins {won} for {side.object_}",
    "{line} costs {other.object_} {won}",
    "{line} brings {side.object_} {won}",
)
LINE_WINS_FOR = (
    "{line} brings {side.object_} {won} for {lost}",
    "{line} costs {other.object_} {won} for {lost}",
)
EQUAL = (
    "the position is equal",
    "the game is level",
    "the chances are even",
    "neither side has an edge",
    "the position is balanced",
    "nobody stands better",
    "there is not much in it",
    "the position stays level",
    "chances are roughly equal",
    "there is little in it",
    "it is about equal",
)
WITH = {
    Standing.EQUAL: ("with equal chances", "with roughly equal play", "with equality", "with balanced play"),
    Standing.SLIGHTLY_BETTER: (
        "with a small edge for {side.object_}",
        "with a slight plus for {side.object_}",
        "with a slight advantage for {side.object_}",
    ),
    Standing.BETTER: (
        "with a clear advantage for {side.object_}",
        "with a comfortable edge for {side.object_}",
        "with a definite plus for {side.object_}",
    ),
    Standing.MUCH_BETTER: (
        "with a big advantage for {side.object_}",
        "with a large plus for {side.object_}",
        "with a serious advantage for {side.object_}",
    ),
    Standing.WINNING: (
        "with a decisive advantage for {side.object_}",
        "with a winning advantage for {side.object_}",
    ),
}
