"""`python -m bench.arena`: games of rook-tiny against a random mover, many at a time and one at a time.

Two figures: how many times as many games a minute are finished with many at a time, and the share of the time
in which neither player was asked anything. Both ways of playing take turns on one server; the best round of
each counts. A random legal move replaces an illegal one, so that games are as long as they can be.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import chess
from rich.console import Console

from launcher.serve_players import serve
from services.arena.matches.session import run_match
from services.arena.players.player import Player, Reply
from services.arena.players.spec import make_player
from services.arena.settings import MatchSettings

TARGET_RATIO = 10.0
TARGET_SHARE = 0.05


class Clock:
    """Measures for how long at least one player is thinking, and the plies that were asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.plies = 0
        self._thinking = 0
        self._since = 0.0

    def begin(self) -> None:
        self._thinking += 1
        if self._thinking == 1:
            self._since = time.perf_counter()

    def end(self) -> None:
        self.plies += 1
        self._thinking -= 1
        if not self._thinking:
            self.seconds += time.perf_counter() - self._since


class Timed:
    """A player whose thinking is timed."""

    def __init__(self, player: Player, clock: Clock) -> None:
        self._player, self._clock = player, clock
        self.name, self.describe, self.close = player.name, player.describe, player.close

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        self._clock.begin()
        try:
            return await self._player.play(board, seed=seed)
        finally:
            self._clock.end()


def main() -> int:
    """Plays, prints the figures, and returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.arena",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="models/rook-tiny", help="directory or Hugging Face id")
    parser.add_argument("--style", default="mover-squares", help="its prompt style")
    parser.add_argument("--pairs", type=int, default=64, help="openings, many games at a time")
    parser.add_argument("--concurrency", type=int, default=64, help="games at a time")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--max-plies", type=int, default=120, help="a game is a draw after so many")
    options = parser.parse_args()
    spec = f"model:{options.model},style={options.style},max-tokens=32,name=model"
    rounds = []
    with serve([spec]) as (player,):
        for number in range(options.rounds):
            many = _measure(
                player, options, pairs=options.pairs, concurrency=options.concurrency, seed=number
            )
            one = _measure(player, options, pairs=max(1, options.pairs // 16), concurrency=1, seed=number)
            rounds.append((many, one))
    many, one = (max(side, key=lambda round: round["games_per_minute"]) for side in zip(*rounds, strict=True))
    ratio = many["games_per_minute"] / one["games_per_minute"]
    share = one["share_of_neither"]
    report = {
        f"{options.concurrency} at a time": many,
        "one at a time": one,
        "targets": {
            "games a minute, many to one": {
                "ratio": ratio,
                "target": TARGET_RATIO,
                "met": ratio >= TARGET_RATIO,
            },
            "share of neither player": {"share": share, "target": TARGET_SHARE, "met": share <= TARGET_SHARE},
        },
    }
    print(json.dumps(report, indent=2))
    return 0 if all(target["met"] for target in report["targets"].values()) else 1


def _measure(
    spec: str, options: argparse.Namespace, *, pairs: int, concurrency: int, seed: int
) -> dict[str, float]:
    """Plays a match: games and plies a minute, and the shares of the time that the games took.

    `share_of_neither` is without anyone thinking, `cpu_share` the processor time of this process, which has
    the client of the server in it.
    """
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="bench-arena-") as folder:
        settings = MatchSettings(
            player=spec,
            opponent="random",
            pairs=pairs,
            illegal="random",
            max_plies=options.max_plies,
            concurrency=concurrency,
            seed=seed,
            out=Path(folder),
        )
        started, cpu = time.perf_counter(), time.process_time()
        report = asyncio.run(
            run_match(
                settings, make=lambda spec: Timed(make_player(spec), clock), console=Console(file=sys.stderr)
            )
        )
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    games = sum(encounter.wins + encounter.draws + encounter.losses for encounter in report.encounters)
    return {
        "games": games,
        "games_per_minute": 60 * games / seconds,
        "plies_per_second": clock.plies / seconds,
        "share_of_neither": 1 - clock.seconds / seconds,
        "cpu_share": cpu / seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
