"""Who plays whom: makes a schedule, plays its games, many at a time, and writes each finished one down.

A game in which a player does not answer has no result: it is reported as unplayed, and the next run of the
same command plays it. The results do not depend on how many games are played at a time.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations

from arena.matches.game import Fixture, MatchGame, Play
from arena.matches.journal import Journal
from arena.players.player import Player
from rookery.errors import InvalidInput, Unavailable
from rookery.games import Rules
from rookery.openings import Opening

LADDER_REACH = 3
"""On a ladder, each player plays those at most this many rungs above and below."""

SCHEDULES: dict[str, Callable[[Sequence[str]], list[tuple[str, str]]]] = {
    "gauntlet": lambda names: [(names[0], opponent) for opponent in names[1:]],
    "round-robin": lambda names: list(combinations(names, 2)),
    "ladder": lambda names: [
        (name, opponent) for i, name in enumerate(names) for opponent in names[i + 1 : i + 1 + LADDER_REACH]
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

    The openings come one after the other, so that the results of all pairings grow together. Raises
    `InvalidInput` if two players have the same name and would be confused, or one plays against itself.
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


@dataclass(frozen=True, slots=True)
class Unplayed:
    """A game without a result, because a player or the referee did not answer."""

    white: str
    black: str
    pair: int
    reason: str


@dataclass(frozen=True, slots=True)
class Played:
    """The games in the order of the schedule, up to where the tournament stopped."""

    games: tuple[MatchGame, ...]
    unplayed: tuple[Unplayed, ...]


async def play_all(
    schedule: Sequence[Fixture],
    play: Play,
    *,
    journal: Journal,
    concurrency: int,
    finished: Callable[[MatchGame], None] = lambda game: None,
    enough: Callable[[MatchGame], bool] = lambda game: False,
) -> Played:
    """Plays what is not in `journal` yet.

    `enough` may end the tournament early. It is called once for each game in the order of the schedule, never
    in the order in which games end: short games end first, and their results differ from those of long ones.
    Games after the one that was enough are stopped and not counted. Raises `Unavailable` if more games in a
    row than `concurrency` had no result.
    """
    state = _State(schedule, journal, finished=finished, enough=enough, patience=concurrency)

    async def work() -> None:
        while not state.ended and (fixture := next(state.waiting, None)) is not None:
            with state.settling(fixture):
                state.settle(await play(fixture))
            await asyncio.sleep(0)  # players that never wait must not keep the others from theirs
        for worker in workers if state.ended else ():
            if worker is not asyncio.current_task():
                worker.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(concurrency)]
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from faults
    return state.played()


class _State:
    """The state of a tournament: the results, and how much of the schedule is settled without a gap."""

    def __init__(
        self,
        schedule: Sequence[Fixture],
        journal: Journal,
        *,
        finished: Callable[[MatchGame], None],
        enough: Callable[[MatchGame], bool],
        patience: int,
    ) -> None:
        self._schedule = schedule
        self._journal = journal
        self._finished = finished
        self._enough = enough
        self._patience = patience
        self._faults_in_a_row = 0
        self._unplayed: dict[str, Unplayed] = {}
        self._settled: list[MatchGame | Unplayed] = []
        self.ended = False
        self.waiting = iter([fixture for fixture in schedule if fixture.key not in journal.games])
        self._advance()

    def settle(self, game: MatchGame) -> None:
        self._faults_in_a_row = 0
        self._journal.add(game)
        self._finished(game)
        self._advance()

    @contextmanager
    def settling(self, fixture: Fixture) -> Iterator[None]:
        """Leaves the game unplayed if a player does not answer; raises after too many such games in a row."""
        try:
            yield
        except Unavailable as fault:
            self._unplayed[fixture.key] = Unplayed(fixture.white, fixture.black, fixture.pair, str(fault))
            self._faults_in_a_row += 1
            if self._faults_in_a_row > self._patience:
                raise
            self._advance()

    def _advance(self) -> None:
        while not self.ended and len(self._settled) < len(self._schedule):
            key = self._schedule[len(self._settled)].key
            result = self._journal.games.get(key) or self._unplayed.get(key)
            if result is None:
                break
            self._settled.append(result)
            self.ended = isinstance(result, MatchGame) and self._enough(result)

    def played(self) -> Played:
        return Played(
            games=tuple(result for result in self._settled if isinstance(result, MatchGame)),
            unplayed=tuple(result for result in self._settled if isinstance(result, Unplayed)),
        )
