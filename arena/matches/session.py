"""Runs a match or a tournament from its settings to its files, with a progress bar in the terminal."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from arena.matches import llm_chess
from arena.matches.game import MatchGame
from arena.matches.journal import as_pgn, open_journal, read_games
from arena.matches.report import (
    VERSION,
    MatchReport,
    SprtResult,
    encounter_text,
    encounters,
    rating_table,
    score_of,
    sprt_text,
    summary,
)
from arena.matches.tournament import SCHEDULES, Played, fixtures, play_all
from arena.matches.workers import Cast, open_players, playing
from arena.strength.fit import Ratings, fit
from arena.strength.pentanomial import SCORES
from arena.strength.sprt import Sprt
from rookery.config.arena import EloSettings, GameSettings, MatchSettings, TournamentSettings
from rookery.errors import InvalidInput
from rookery.games import Rules
from rookery.openings import BUILT_IN, START, Opening, draw, read_openings
from rookery.terminal import SafeConsole

LADDER = Path(__file__).with_name("ladder.json")
"""Ratings of weak opponents above `random`, fitted to 2,400 games that they played with Stockfish 15.1."""

JOURNAL, PGN, REPORT = "games.jsonl", "games.pgn", "match.json"


class Gate:
    """A sequential test of `player`, told every game in the order of the schedule."""

    def __init__(self, test: Sprt, player: str) -> None:
        self._test = test
        self._player = player
        self._first_of_pair: dict[int, float] = {}
        self._counts = [0] * len(SCORES)

    def __call__(self, game: MatchGame) -> bool:
        """Takes in the game. Returns whether the test has come to a decision."""
        score = score_of(self._player, game)
        if game.pair not in self._first_of_pair:
            self._first_of_pair[game.pair] = score
            return False
        self._counts[SCORES.index((self._first_of_pair[game.pair] + score) / 2)] += 1
        return self._test.decision(self._counts) is not None

    @property
    def result(self) -> SprtResult:
        """The test as it stands."""
        return SprtResult(
            self._test,
            float(self._test.llr(self._counts)),
            self._test.bounds,
            self._test.decision(self._counts),
        )


async def run_match(settings: MatchSettings, *, console: Console | None = None) -> MatchReport:
    """Plays the match, writes its files and returns the content of match.json. Raises `InvalidInput` if a
    player, the openings or the test are not as they should be; further ones as `play_all`."""
    console = console or SafeConsole()
    specs = [settings.player, settings.opponent]
    async with open_players(specs, settings.referee) as cast:
        player, opponent = cast[0]
        gate = Gate(_sprt(settings), player) if settings.sprt else None
        session = _Session(settings, specs, cast, console)
        dialogue = "dialogue" in cast[0][player].describe()
        if settings.llm_chess:
            session.rules, session.openings = llm_chess.RULES, [START] * settings.pairs
            if dialogue:  # which asks again itself
                session.rules = replace(session.rules, illegal="forfeit")
            played = await session.play([(opponent, player)], both_colours=False)
        else:
            played = await session.play([(player, opponent)], enough=gate)
        report = session.report(
            played,
            schedule="llm_chess" if settings.llm_chess else "match",
            ratings=rate(played.games, {}) if settings.llm_chess and played.games else None,
            sprt=gate.result if gate else None,
            counts=llm_chess.count(played.games, dialogue=dialogue) if settings.llm_chess else None,
        )
    for encounter in report.encounters:
        console.print(encounter_text(encounter), soft_wrap=True, highlight=False)
    if report.sprt:
        console.print(sprt_text(report.sprt), soft_wrap=True, highlight=False)
    return report


async def run_tournament(settings: TournamentSettings, *, console: Console | None = None) -> MatchReport:
    """Plays the tournament, writes its files and returns the content of match.json. Raises as `run_match`."""
    console = console or SafeConsole()
    anchors = read_anchors(settings.anchors)
    async with open_players(settings.players, settings.referee) as cast:
        session = _Session(settings, settings.players, cast, console)
        played = await session.play(SCHEDULES[settings.schedule](list(cast[0])))
        ratings = rate(played.games, anchors) if played.games else None
        report = session.report(played, schedule=settings.schedule, ratings=ratings)
    if ratings:
        console.print(rating_table(ratings, report.players))
    return report


def run_elo(settings: EloSettings, *, console: Console | None = None) -> Ratings:
    """Prints and returns the ratings of all players of the file. Raises `InvalidInput` if one of the files
    cannot be read, or has no game."""
    console = console or SafeConsole()
    games = read_games(settings.games)
    if not games:
        raise InvalidInput(f"no finished game in {str(settings.games)!r}")
    ratings = rate(games, read_anchors(settings.anchors))
    console.print(rating_table(ratings, [summary(rating.name, games) for rating in ratings.players]))
    return ratings


def rate(games: Sequence[MatchGame], anchors: Mapping[str, float]) -> Ratings:
    """The ratings of all players. Without an anchor that played, `random` is held at 0 if it did."""
    results = [(game.white, game.black, game.white_score) for game in games]
    names = {name for white, black, _ in results for name in (white, black)}
    return fit(results, anchors=anchors if names & anchors.keys() else {"random": 0.0})


def read_anchors(path: Path | None) -> dict[str, float]:
    """The ratings to hold, by name: those of a match.json, or of a JSON object of names and numbers. The path
    `ladder` stands for `LADDER`. Raises `InvalidInput` if the file is neither."""
    if path is None:
        return {}
    try:
        document = json.loads((LADDER if path == Path("ladder") else path).read_text())
        if "ratings" in document:
            if document["ratings"] is None:
                raise InvalidInput(f"anchors {str(path)!r}: a match has no ratings, only a tournament has")
            ratings = document["ratings"]["players"]
            document = {
                rating["name"]: rating["elo"]["value"]
                for rating in ratings
                if rating["elo"]["value"] is not None
            }
        return {str(name): float(elo) for name, elo in document.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(f"anchors {str(path)!r}: {error!r}") from error


class _Session:
    """What a match and a tournament have in common: rules, openings, the journal, the files."""

    def __init__(self, settings: GameSettings, specs: Sequence[str], cast: Cast, console: Console) -> None:
        book = read_openings(settings.openings or BUILT_IN)
        self.rules = Rules(illegal=settings.illegal, max_plies=settings.max_plies, limit_cp=settings.limit_cp)
        self.openings: Sequence[Opening] = draw(book, settings.pairs, seed=settings.seed)
        self._settings = settings
        self._specs = specs
        self._players, self._referee = cast
        self._console = console
        self._started = time.monotonic()

    async def play(
        self,
        pairings: Sequence[tuple[str, str]],
        *,
        both_colours: bool = True,
        enough: Callable[[MatchGame], bool] | None = None,
    ) -> Played:
        """Plays what is not in the journal yet, and writes all games as PGN."""
        schedule = fixtures(
            pairings,
            self.openings,
            self._players,
            self.rules,
            seed=self._settings.seed,
            both_colours=both_colours,
            referee=self._referee,
        )
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with (
            open_journal(self._settings.out / JOURNAL) as journal,
            playing(
                self._settings.ray,
                self._specs,
                self._settings.referee,
                (self._players, self._referee),
                self.rules,
            ) as play,
            Progress(*columns, console=self._console) as progress,
        ):
            bar = progress.add_task("games", total=len(schedule))
            progress.advance(bar, sum(fixture.key in journal.games for fixture in schedule))
            played = await play_all(
                schedule,
                play,
                journal=journal,
                concurrency=self._settings.concurrency,
                finished=lambda game: progress.advance(bar),
                enough=enough or (lambda game: False),
            )
        versions = {name: player.describe() for name, player in self._players.items()}
        pgn = "".join(as_pgn(game, versions) for game in played.games)
        (self._settings.out / PGN).write_text(pgn, encoding="utf-8")
        return played

    def report(
        self,
        played: Played,
        *,
        schedule: str,
        ratings: Ratings | None = None,
        sprt: SprtResult | None = None,
        counts: Mapping[str, float] | None = None,
    ) -> MatchReport:
        """The content of match.json, which it also writes."""
        book = self._settings.openings
        report = MatchReport(
            version=VERSION,
            schedule=schedule,
            rules=self.rules,
            referee=dict(self._referee.describe()) if self._referee else None,
            openings="none" if counts else book.name if book else "built-in",
            seed=self._settings.seed,
            players=tuple(summary(name, played.games, player) for name, player in self._players.items()),
            encounters=encounters(played.games, list(self._players), paired=counts is None),
            ratings=ratings,
            sprt=sprt,
            llm_chess=counts,
            terminations=dict(sorted(Counter(game.termination for game in played.games).items())),
            unplayed=played.unplayed,
            seconds=time.monotonic() - self._started,
        )
        path = self._settings.out / REPORT
        path.write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False, default=str) + "\n")
        if report.unplayed:
            self._console.print(
                f"{len(report.unplayed)} games without a result, because a player did not answer: "
                f"{report.unplayed[0].reason}. The same command plays them.",
                soft_wrap=True,
                highlight=False,
            )
        self._console.print(f"report: {path}", soft_wrap=True, highlight=False)
        return report


def _sprt(settings: MatchSettings) -> Sprt:
    try:
        elo0, elo1 = map(float, str(settings.sprt).split(","))
        return Sprt(elo0, elo1, settings.alpha, settings.beta, settings.elo_model)
    except ValueError as error:
        raise InvalidInput(f"--sprt {settings.sprt!r}: {error}") from error
