"""Evaluates one version of a run: its answers to fixed positions, and a short match."""

import asyncio
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from arena.answer_store import ANSWERS_FILE, key_of, open_answers
from arena.answers import Answers
from arena.asking import Asker, BestMover, Variant, reward_version_of
from arena.matches.journal import read_games
from arena.matches.report import MatchReport
from arena.matches.session import JOURNAL, run_match
from arena.measures import mean, move_metrics, sampled
from arena.pieces import BEST, RANDOM, piece_distance
from arena.players.player import RandomPlayer
from arena.players.spec import make_player
from arena.positions import Chosen, fens_sha256
from arena.sections.positions import MOVE
from arena.sections.reasoning import distinct_share
from arena.session import REWARD_TIMEOUT_S, held_out
from arena.stats import Bootstrap, Ratio
from arena.tables import estimate_json
from rookery.access import AccessSettings
from rookery.clients import RewardClient
from rookery.config.arena import MatchSettings, WatchSettings
from rookery.errors import PeerFault
from rookery.plots.steps import read_strength
from rookery.settings import RunSettings
from rookery.trace import PolicyVersion

FOLDER = "strength"
"""Folder of the answers and games of each version, in that of the run."""

MEASURED = (
    "legal_rate", "legal_rate_greedy", "action_accuracy", "action_accuracy_greedy", "regret_legal",
    "regret_legal_greedy", "reward",
)  # fmt: skip
"""The metrics of answers to positions that strength.jsonl has."""

OF_RANDOM_MOVES = ("action_accuracy", "regret_legal")
"""The metrics that it also has of random legal moves, as NAME_random."""

_UNDECISIVE = {
    *AccessSettings.model_fields, *RunSettings.model_fields, "run_dir", "every", "inference_url",
    "reward_target", "concurrency", "host", "port", "data_url", "positions", "exclude", "count", "opponent",
    "referee",
}  # fmt: skip
"""Settings that change no figure, or that the conditions have in another form: as FENs or as players."""

_RANDOM_MOVES = 8
"""Random moves drawn at each position."""


class VersionEvaluator:
    """Evaluates all versions alike."""

    def __init__(self, settings: WatchSettings) -> None:
        """Raises SetupError if the opponent or the referee cannot be made."""
        self._settings = settings
        self._reward = RewardClient(
            settings.reward_target, access=settings.access, timeout_s=REWARD_TIMEOUT_S
        )
        # Made to be described. Each match makes its own.
        self._others = [make_player(spec) for spec in (settings.opponent, settings.referee) if spec]
        self._chosen: Chosen | None = None

    async def evaluate(self, version: PolicyVersion) -> dict[str, Any] | None:
        """The line of the version, or None if strength.jsonl has it. Earlier answers and games are kept.
        Raises `NotFound` if the version is no longer served; `Unavailable` if a peer did not answer;
        `InvalidInput` if there are fewer positions than asked for."""
        started, settings = time.time(), self._settings
        self._chosen = self._chosen or await held_out(settings)
        reward_version = await reward_version_of(self._reward)
        conditions = self._conditions(self._chosen, reward_version)
        head = {"version": version.number, "sha256": version.sha256, "settings": conditions}
        if any(head.items() <= row.items() for row in read_strength(settings.run_dir)):
            return None
        folder = settings.run_dir / FOLDER / f"{version.name}-{key_of(head)[:8]}"
        player = make_player(self._spec(version))
        with open_answers(folder / ANSWERS_FILE) as store:
            asker = Asker(
                store=store,
                reward=self._reward,
                reward_version=reward_version,
                temperature=settings.temperature,
                seed=settings.seed,
                concurrency=settings.concurrency,
            )
            try:
                variant = Variant(MOVE, settings.style, settings.samples)
                answers = await asker.positions(player, self._chosen.positions, variant)
            finally:
                await player.close()
        with open_answers(settings.run_dir / FOLDER / "references" / ANSWERS_FILE) as asker.store:
            drawn = Variant(MOVE, None, _RANDOM_MOVES)
            random = await asker.positions(RandomPlayer(RANDOM), self._chosen.positions, drawn)
            mover = BestMover(BEST, self._reward)
            best = await asker.positions(mover, self._chosen.positions, Variant(MOVE, None))
        report = await self._play(version, folder) if settings.pairs else None
        metrics = await asyncio.to_thread(_metrics, settings, answers, random=random, best=best)
        if report:
            metrics |= await asyncio.to_thread(_match_metrics, settings, report, folder / JOURNAL)
        seconds = round(time.time() - started, 1)
        return {**head, "time": round(started, 1), "seconds": seconds, "metrics": metrics}

    async def close(self) -> None:
        await self._reward.close()
        for player in self._others:
            await player.close()

    async def _play(self, version: PolicyVersion, folder: Path) -> MatchReport:
        settings = self._settings
        match = MatchSettings.model_construct(
            player=self._spec(version),
            opponent=settings.opponent,
            pairs=settings.pairs,
            illegal="random",
            max_plies=settings.max_plies,
            referee=settings.referee or None,
            concurrency=settings.concurrency,
            seed=settings.seed,
            out=folder,
        )
        report = await run_match(match, console=Console(quiet=True))
        if report.unplayed:
            raise PeerFault(f"{len(report.unplayed)} games of the match: {report.unplayed[0].reason}")
        return report

    def _spec(self, version: PolicyVersion) -> str:
        settings = self._settings
        options = {
            "style": settings.style,
            "max-tokens": settings.max_tokens,
            "source": f"run:{settings.run}@{version.number}:{version.sha256[:12]}",
            **({} if settings.thinking is None else {"thinking": settings.thinking}),
            **settings.access.player_options,
        }
        place = f"{settings.inference_url}#{version.name}"
        return ",".join((place, *(f"{key}={value}" for key, value in options.items())))

    def _conditions(self, chosen: Chosen, reward_version: str) -> str:
        """A hash of what decides the figures, but for the version: settings, positions, players."""
        conditions = self._settings.model_dump(exclude=_UNDECISIVE, exclude_none=True)
        conditions |= {
            "fens": fens_sha256(chosen.positions),
            "others": [dict(player.describe()) for player in self._others],
        }
        return key_of({**conditions, "reward_version": reward_version})[:12]


def _metrics(
    settings: WatchSettings, answers: list[Answers], *, random: list[Answers], best: list[Answers]
) -> dict[str, Any]:
    """The metrics of the answers and of the references, each with `mean` and `ci95` as in report.json."""
    metrics_of_moves = move_metrics(_RANDOM_MOVES)
    measures = {metric.name: measure for metric, measure in metrics_of_moves.items()}
    names = MEASURED if settings.samples else [name for name in MEASURED if name.endswith("_greedy")]
    ratios = {
        **{name: measures[name](answers) for name in names},
        **{f"{name}_random": measures[name](random) for name in OF_RANDOM_MOVES},
        "distinct_candidates": mean(distinct_share, sampled)(answers),
    }
    bootstrap = Bootstrap(ratios, seed=settings.seed)
    numbers = {metric.name for metric in metrics_of_moves if metric.unit != "share"}
    metrics = {
        name: bootstrap.estimate(name, share=name.removesuffix("_random") not in numbers)
        for name, ratio in ratios.items()
        if ratio.counts.any()
    }
    metrics["piece_distance"] = piece_distance(answers, best, seed=settings.seed)
    return {name: estimate_json(estimate) for name, estimate in metrics.items()}


def _match_metrics(settings: WatchSettings, report: MatchReport, journal: Path) -> dict[str, Any]:
    (encounter,) = report.encounters
    # The share of the player's turns whose first answer was a legal move, by game.
    turns = [game.turns_of(encounter.player) for game in read_games(journal)]
    legal = [sum(turn.legal_at_once for turn in player_turns) for player_turns in turns]
    first_tries = Ratio.of(legal, [len(player_turns) for player_turns in turns])
    estimate = Bootstrap({"": first_tries}, seed=settings.seed).estimate("", share=True)
    elo = encounter.elo
    bounds = None if elo.low is elo.high is None else [elo.low, elo.high]
    return {"legal_rate_match": estimate_json(estimate), "elo": {"mean": elo.value, "ci95": bounds}}
