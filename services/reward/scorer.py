"""Turns a `ScoreItem` into a `Verdict`: each task reads the answer, asks the engines and applies the scheme.

A bad answer gets a verdict. A bad FEN, task or scheme raises `InvalidInput`, a failed engine `EngineFault`.
An answer without a legal move needs no search: its verdict names the engine and zero nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import chess
import chess.engine

from rookery import metrics
from rookery.clients.reward_model import RewardModelClient
from rookery.engines import EnginePool, RequestQueue, find_engine
from rookery.engines.player import EnginePlayer, stockfish_player
from rookery.errors import (
    QUOTED_CHARS,
    EngineFault,
    InvalidInput,
    RookeryError,
    SetupError,
    Unavailable,
    free_frames,
)
from rookery.prompt import GAME_TASK, POLICY_TASK, STATE_TASK
from rookery.schemes import find_scheme
from rookery.trace import Outcome, ScoreItem, Verdict
from rookery.winprob import WinModel
from services.reward.cache import AnalysisCache
from services.reward.custom_schemes import CustomTerm, load_terms
from services.reward.move_task import MoveTask
from services.reward.position import read_position
from services.reward.reward_model import RewardModel
from services.reward.rookworld_task import RookWorldTask
from services.reward.searches import Result, Searches

if TYPE_CHECKING:
    from rookery.config.reward import RewardSettings
    from rookery.shared_cache import SharedCache

MOVE = "move"

SLOWEST_NODES_PER_S = 20_000
"""A search that is slower has hung. `deadline_s` alone would be too short for searches of many nodes."""

_YIELD_EVERY = 8
"""Items read before the event loop runs other tasks. Reading a thousand takes a tenth of a second."""

_OUTCOMES = {outcome: metrics.REWARD_OUTCOMES.labels(outcome) for outcome in Outcome}


class Scorer:
    """Judges answers with one pool of engines. Use it from one event loop only."""

    def __init__(
        self,
        pool: EnginePool,
        settings: RewardSettings,
        shared: SharedCache | None = None,
        reward_model: RewardModel | None = None,
        custom: tuple[CustomTerm, ...] = (),
    ) -> None:
        self.pool = pool
        self._custom = custom
        self._reward_model = reward_model
        self._settings = settings
        self._shared = shared
        self._stockfish: asyncio.Task[EnginePlayer] | None = None
        self._replies, self._reply_slots = 0, asyncio.Semaphore(settings.engines)
        engine = pool.engine_id.lower().replace(" ", "-")
        cache = AnalysisCache(engine=f"{engine}:hash-{settings.hash_mb}", shared=shared)
        model = WinModel(settings.win_model, settings.k)
        moves = MoveTask(
            Searches(cache, model, settings, engine_id=pool.engine_id),
            scheme=settings.scheme,
            custom=custom,
            reward_model=reward_model,
        )
        # Task P's answers have evaluations in pawns, which `wdl` cannot turn into win probabilities.
        cp_model = WinModel(k=settings.k)
        lines = RookWorldTask(Searches(cache, cp_model, settings, engine_id=pool.engine_id))
        self._tasks: dict[str, MoveTask | RookWorldTask] = {
            MOVE: moves,
            GAME_TASK: moves,
            POLICY_TASK: lines,
            STATE_TASK: lines,
        }

    @classmethod
    async def start(cls, settings: RewardSettings) -> Self:
        """Starts the engines and returns a scorer with them. Raises `SetupError` if Stockfish was not found
        or does not work, or the Redis URL is not valid."""
        shared = reward_model = None
        if settings.redis_url:
            from rookery.shared_cache import SharedCache

            shared = SharedCache(settings.redis_url)
        custom = await load_terms(settings.schemes)
        try:
            scheme = find_scheme(settings.scheme, custom)
        except InvalidInput as error:
            raise SetupError(f"--scheme: {error}") from error
        if "model" in scheme.uses and not settings.model_url:
            raise SetupError(f"scheme {settings.scheme!r} needs a reward model: set model_url to its URL")
        path = find_engine(settings.engine_path, setting="--engine-path (REWARD_ENGINE_PATH)")
        pool = EnginePool(
            path,
            engines=settings.engines,
            hash_mb=settings.hash_mb,
            queue=settings.queue,
            deadline_s=max(settings.deadline_s, settings.nodes / SLOWEST_NODES_PER_S),
        )
        try:
            await pool.start()
            if settings.model_url:
                reward_model = RewardModel(RewardModelClient(settings.model_url, access=settings.access))
            return cls(pool, settings, shared, reward_model, custom)
        except RookeryError as error:
            raise SetupError(f"{str(path)!r} is not a working engine: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops the engines and closes the connections to the reward model, users' servers and Redis."""
        await self.pool.close()
        if self._stockfish is not None:
            with suppress(SetupError):  # it did not start
                await (await self._stockfish).close()
        if self._reward_model is not None:
            await self._reward_model.close()
        for term in self._custom:
            await term.close()
        if self._shared is not None:
            await self._shared.close()

    async def unavailable_reason(self) -> str | None:
        """Why answers cannot be judged by the default scheme now, or None if they can."""
        if not self.pool.ready:
            return "no engine can be started"
        scheme = find_scheme(self._settings.scheme, self._custom)
        for _, term in scheme.terms:
            if isinstance(term, CustomTerm) and (reason := await term.unavailable_reason()):
                return reason
        if self._reward_model is not None and "model" in scheme.uses:
            return await self._reward_model.identify()
        return None

    async def reply(
        self,
        board: chess.Board,
        *,
        limit: chess.engine.Limit,
        options: Mapping[str, chess.engine.ConfigValue],
    ) -> chess.Move | None:
        """The move of Stockfish as an opponent in games. At most `engines` processes play, which start with
        the first games. Raises `Unavailable` if more than `queue` moves wait, `EngineFault` if it failed."""
        if self._replies >= self._settings.engines + self._settings.queue:
            raise Unavailable(f"{self._settings.queue} moves wait for {self._settings.engines} opponents")
        self._replies += 1
        try:
            async with self._reply_slots:
                player = await self._opponent()
                return (await player.play(board, seed=0, limit=limit, options=options)).move
        finally:
            self._replies -= 1

    async def _opponent(self) -> EnginePlayer:
        if self._stockfish is None:
            path, limit = self._settings.engine_path, chess.engine.Limit(nodes=self._settings.nodes)
            making = asyncio.to_thread(stockfish_player, "stockfish", limit=limit, path=path)
            self._stockfish = asyncio.create_task(making)
        start = self._stockfish
        try:
            return await asyncio.shield(start)
        except SetupError as error:
            if self._stockfish is start:  # the next game tries again
                self._stockfish = None
            raise EngineFault(str(error)) from error

    async def score(self, item: ScoreItem) -> Verdict:
        """The verdict of one answer. Raises `InvalidInput` if the FEN, task, move or scheme is not valid, or
        the position is quarantined; `Unavailable` if the queue is full, no engine works, or the reward model
        does not answer."""
        (result,) = await self.score_batch([item])
        if isinstance(result, Verdict):
            return result
        raise result

    async def score_batch(self, items: Sequence[ScoreItem | RookeryError]) -> list[Result]:
        """Verdicts in the order of `items`. An item that cannot be judged gets its error in its place. An
        item that could not be read is its error already."""
        results: dict[int, Result] = {}
        groups: defaultdict[tuple[str, str], dict[int, ScoreItem]] = defaultdict(dict)
        for number, item in enumerate(items):
            if isinstance(item, ScoreItem):
                groups[item.fen, item.task][number] = item
            else:
                results[number] = item
        queue = self.pool.queue()
        read = 0
        with metrics.REWARD_SECONDS.time():
            async with asyncio.TaskGroup() as group_tasks:
                for group in groups.values():
                    group_tasks.create_task(self._score_group(group, results, queue))
                    read += len(group)
                    if read >= _YIELD_EVERY:
                        read = 0
                        await asyncio.sleep(0)
        outcomes = Counter(result.outcome for result in results.values() if isinstance(result, Verdict))
        for outcome, count in outcomes.items():
            _OUTCOMES[outcome].inc(count)
        return [results[number] for number in range(len(items))]

    async def _score_group(
        self, group: Mapping[int, ScoreItem], results: dict[int, Result], queue: RequestQueue
    ) -> None:
        """Adds the results of `group`. Its items have the same FEN and task, so they share searches."""
        schemes = [item.scheme or self._settings.scheme for item in group.values()]
        if self._reward_model is not None and any("model" in scheme for scheme in schemes):
            await self._reward_model.identify()
        answers: dict[int, Any] = {}
        for number, item in group.items():
            try:
                task, position = self._task(item), read_position(item.fen)
                read = await task.read(item, position)
            except RookeryError as error:
                free_frames(error)  # they hold the whole batch
                results[number] = error
                continue
            if isinstance(read, Verdict):
                results[number] = read
            else:
                answers[number] = read
        if not answers:
            return
        try:
            judged = await task.judge(position, list(answers.values()), queue)
        except RookeryError as error:  # concerns only these items; raised, it would cancel the whole batch
            free_frames(error)
            judged = [error] * len(answers)
        results.update(zip(answers, judged, strict=True))

    def _task(self, item: ScoreItem) -> MoveTask | RookWorldTask:
        name = item.task or MOVE
        if name not in self._tasks:
            raise InvalidInput(f"no task {name[:QUOTED_CHARS]!r}: choose from {', '.join(self._tasks)}")
        for field, value, tasks in (("move", item.move, "A"), ("target", item.target, "PA")):
            if value and name not in tuple(tasks):
                of = " or ".join(map(repr, tasks))
                raise InvalidInput(
                    f"{field} {value[:QUOTED_CHARS]!r} is only for task {of}, not for {name!r}"
                )
        return self._tasks[name]
