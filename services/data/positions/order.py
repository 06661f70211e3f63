"""The endless order of positions for a seed. Position number i is the same in every process.

HTTP, gRPC and the feed all number positions this way, so a client can stop anywhere and resume with another
of them. Each number has its own random generator, so nothing depends on what was drawn before.
"""

import random
from collections.abc import Iterator
from itertools import count

from rookery.metrics import POSITIONS_SAMPLED
from rookery.prompt import mover_board
from rookery.trace import Phase, Position
from services.data.pgn.games import Game, Split
from services.data.pgn.shortage import nothing_to_sample
from services.data.positions.archive import Archive
from services.data.positions.sampler import Shares

_GAMES_TRIED = 50
"""Games searched for a ply of the drawn phase. After that, a ply of any phase is taken."""

_BARREN_NUMBERS = 2000
"""`distinct` ends after this many numbers in a row without a new position."""


class Order:
    """Numbered positions of an archive. Thread-safe.

    Raises:
        SetupError: the split has nothing to sample; the message names the files and the skipped games.
    """

    def __init__(self, archive: Archive, *, shares: Shares, split: Split) -> None:
        self.split = split
        self.archive = archive
        self._shares = shares
        self._draw(0, 0, split)

    def position(self, number: int, *, seed: int, split: Split | None = None) -> Position:
        """Position number `number` for a seed. `split` overrides the order's own.

        If the drawn phase hardly occurs in the games, a position of another phase is returned.

        Raises:
            SetupError: no game of the split has a suitable position.
        """
        position = self._draw(number, seed, split or self.split)
        POSITIONS_SAMPLED.labels(position.phase.value).inc()
        return position

    def distinct(self, *, seed: int, split: Split | None = None) -> Iterator[Position]:
        """Positions in order, without repeated questions. Ends when there are hardly any new ones.

        Two positions are the same if their first four FEN fields are equal, seen from the side to move.
        """
        seen: set[str] = set()
        last_new = 0
        for number in count():
            position = self.position(number, seed=seed, split=split)
            question = " ".join(mover_board(position.fen).fen().split()[:4])
            if question not in seen:
                seen.add(question)
                last_new = number
                yield position
            elif number - last_new > _BARREN_NUMBERS:
                return

    def _draw(self, number: int, seed: int, split: Split) -> Position:
        # Python only guarantees that `random()` stays the same in every version.
        rng = random.Random(f"{seed}:{number}")
        return self._of_phase(self._draw_phase(rng), rng, split) or self._of_any(rng, split)

    def _draw_phase(self, rng: random.Random) -> Phase:
        point = rng.random()
        for phase in (Phase.OPENING, Phase.MIDDLEGAME):
            point -= self._shares.of(phase)
            if point < 0:
                return phase
        return Phase.ENDGAME

    def _of_phase(self, phase: Phase, rng: random.Random, split: Split) -> Position | None:
        members = self.archive.members(split)
        for _ in range(_GAMES_TRIED if members else 0):
            game = self.archive.game(members[int(rng.random() * len(members))])
            position = _ply_of(game, game.plies(phase), rng) if game else None
            if position:
                return position
        return None

    def _of_any(self, rng: random.Random, split: Split) -> Position:
        members = self.archive.members(split)
        first = int(rng.random() * len(members))
        for step in range(len(members)):
            game = self.archive.game(members[(first + step) % len(members)])
            plies = [ply for phase in Phase for ply in game.plies(phase)] if game else []
            position = _ply_of(game, plies, rng) if game else None
            if position:
                return position
        raise nothing_to_sample(self.archive.sources, split, list(self.archive.skipped.values()))


def _ply_of(game: Game, plies: list[int], rng: random.Random) -> Position | None:
    return game.position(plies[int(rng.random() * len(plies))]) if plies else None
