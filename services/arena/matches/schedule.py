"""Who plays whom, from which opening, in which order."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations

from rookery.errors import InvalidInput
from services.arena.matches.game import Fixture, Rules
from services.arena.matches.openings import Opening
from services.arena.players.player import Player

LADDER_REACH = 3
"""On a ladder, each player plays those at most this many rungs above and below."""

SCHEDULES: dict[str, Callable[[Sequence[str]], list[tuple[str, str]]]] = {
    "gauntlet": lambda names: [(names[0], other) for other in names[1:]],
    "round-robin": lambda names: list(combinations(names, 2)),
    "ladder": lambda names: [
        (name, other) for i, name in enumerate(names) for other in names[i + 1 : i + 1 + LADDER_REACH]
    ],
}
"""The pairings of each schedule. A gauntlet is the first player's; a ladder goes from weak to strong."""


def fixtures(
    pairings: Iterable[tuple[str, str]],
    openings: Sequence[Opening],
    players: Mapping[str, Player],
    rules: Rules,
    *,
    seed: int,
    both_colours: bool = True,
    referee: Player | None = None,
) -> list[Fixture]:
    """The games of every pairing from every opening, with both colours or with the first player as White.

    The openings come one after the other, so that the results of all pairings grow together.

    Raises:
        InvalidInput: two players have the same name and would be confused, or one plays against itself.
    """
    terms = {"rules": asdict(rules), "seed": seed, "referee": dict(referee.describe()) if referee else None}
    described = {name: dict(player.describe()) for name, player in players.items()}

    def fixture(pair: int, white: str, black: str, opening: Opening) -> Fixture:
        if white == black:
            raise InvalidInput(f"{white!r} against itself: give the players different names")
        decides = [terms, pair, white, described[white], black, described[black], asdict(opening)]
        text = json.dumps(decides, sort_keys=True, default=str)
        return Fixture(pair, white, black, opening, hashlib.sha256(text.encode()).hexdigest()[:24])

    pairings = list(pairings)
    return [
        fixture(pair, white, black, opening)
        for pair, opening in enumerate(openings)
        for a, b in pairings
        for white, black in (((a, b), (b, a)) if both_colours else ((a, b),))
    ]
