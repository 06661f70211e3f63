"""Turns an `Item` (FEN, response) into a `Verdict`: reads the answer, asks the engines, applies the scheme.

A bad answer gets a verdict. A bad FEN, task or scheme raises `InvalidInput`, a failed engine `EngineFault`.
An answer without a legal move needs no search: its verdict names the engine and zero nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rookery import metrics, notation
from rookery.answers import extract, first_line
from rookery.clients.reward_model import RewardModelClient
from rookery.engines import EnginePool, RequestQueue, find_engine
from rookery.errors import EngineFault, InvalidInput, RookeryError, SetupError, free_frames
from rookery.notation import read_move
from rookery.prompt import GAME_TASK
from rookery.schemes import Scheme, Term, find_scheme
from rookery.trace import EngineStamp, Outcome, Verdict
from rookery.winprob import WinModel
from services.reward.cache import AnalysisCache
from services.reward.custom_schemes import load_terms
from services.reward.move_answer import MoveAnswer, read_moves, with_custom, with_reading
from services.reward.move_judge import MoveJudge, Result
from services.reward.position import read_position
from services.reward.reward_model import RewardModel
from services.reward.rookworld_grades import TASKS as ROOKWORLD_TASKS
from services.reward.rookworld_judge import RookworldJudge, judged_by_target
from services.reward.truth import reader_id

if TYPE_CHECKING:
    from rookery.config.reward import RewardSettings
    from rookery.shared_cache import SharedCache

MOVE = "move"
TASKS = (MOVE, GAME_TASK, *ROOKWORLD_TASKS)

SLOWEST_NODES_PER_S = 20_000
"""A search that is slower has hung. `deadline_s` alone would be too short for searches of many nodes."""

MAX_LEGAL_MOVES = 218
"""Most legal moves of a position: R6R/3Q4/1Q4Q1/4Q3/2Q4Q/Q4Q2/pp1Q4/kBNN1KB1 w - - 0 1 (N. Petrovic)."""

QUOTED = 200
"""Characters of a value that an error message quotes."""

_YIELD_EVERY = 8
"""Items read before the event loop runs other tasks. Reading a thousand takes a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Item:
    """One answer to judge. Empty `task` and `scheme` mean the defaults.

    `move` is for task A only. `target` is the right answer to task P or A, if engine and rules do not judge.
    """

    fen: str
    response: str
    task: str = ""
    scheme: str = ""
    truncated: bool = False
    move: str = ""
    target: str = ""


_OUTCOMES = {outcome: metrics.REWARD_OUTCOMES.labels(outcome) for outcome in Outcome}


class Scorer:
    """Judges answers with one pool of engines. Use it from one event loop only."""

    def __init__(
        self,
        pool: EnginePool,
        settings: RewardSettings,
        shared: SharedCache | None = None,
        reward_model: RewardModel | None = None,
        custom: tuple[Term, ...] = (),
    ) -> None:
        self.pool = pool
        self._custom = custom
        self._reward_model = reward_model
        self._settings = settings
        self._shared = shared
        model = WinModel(settings.win_model, settings.k)
        engine = pool.engine_id.lower().replace(" ", "-")
        cache = AnalysisCache(engine=f"{engine}:hash-{settings.hash_mb}", shared=shared)
        self._move_judge = MoveJudge(
            cache, model, nodes=settings.nodes, engine_id=pool.engine_id, reward_model=reward_model
        )
        nodes, searched = f"nodes-{settings.nodes}", f"hash-{settings.hash_mb}/{engine}"
        self._searched = f"{model.id}/{nodes}/{searched}"
        # Task P's answers have evaluations in pawns, which `wdl` cannot turn into win probabilities.
        cp_model = WinModel(k=settings.k)
        self._rookworld_judge = RookworldJudge(
            MoveJudge(cache, cp_model, nodes=settings.nodes, engine_id=pool.engine_id),
            searched=f"{nodes}/{searched}",
            engine_id=pool.engine_id,
        )

    @classmethod
    async def start(cls, settings: RewardSettings) -> Self:
        """Starts the engines and returns a scorer with them.

        Raises:
            SetupError: Stockfish was not found or does not work, or the Redis URL is not valid.
        """
        shared = reward_model = None
        if settings.redis_url:
            from rookery.shared_cache import SharedCache

            shared = SharedCache(settings.redis_url)
        custom = await load_terms(settings.schemes)
        try:
            scheme = find_scheme(settings.scheme, custom)
        except InvalidInput as error:
            raise SetupError(f"--scheme: {error}") from error
        if scheme.needs_model and not settings.model_url:
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
        if self._reward_model is not None:
            await self._reward_model.close()
        for term in self._custom:
            if term.close is not None:
                await term.close()
        if self._shared is not None:
            await self._shared.close()

    async def unavailable_reason(self) -> str | None:
        """Why answers cannot be judged by the default scheme now, or None if they can."""
        if not self.pool.ready:
            return "no engine can be started"
        scheme = find_scheme(self._settings.scheme, self._custom)
        for _, term in scheme.terms:
            if term.unavailable_reason and (reason := await term.unavailable_reason()):
                return reason
        if self._reward_model is not None and scheme.needs_model:
            return await self._reward_model.identify()
        return None

    def version(self, scheme: Scheme) -> str:
        """The `reward_version` under `scheme`: names everything that a reward depends on besides the item.

        Raises:
            InvalidInput: the scheme needs a reward model, and none is set.
            PeerFault: the reward model's identity is not known, because it has not answered yet.
        """
        parts = [scheme.id, f"parser-{notation.VERSION}", self._searched]
        version = "/".join([*parts, reader_id()] if scheme.needs_reading else parts)
        if not scheme.needs_model:
            return version
        if self._reward_model is None:
            raise InvalidInput(f"scheme {scheme.text!r} needs a reward model: set model_url")
        return f"{version}/model-{self._reward_model.sha256}"

    async def score(self, item: Item) -> Verdict:
        """The verdict of one answer.

        Raises:
            InvalidInput: the FEN, task, move or scheme is not valid, or the position is quarantined.
            Unavailable: the queue is full, no engine works, or the reward model does not answer.
        """
        (result,) = await self.score_batch([item])
        if isinstance(result, Verdict):
            return result
        raise result

    async def score_batch(self, items: Sequence[Item]) -> list[Result]:
        """Verdicts in the order of `items`. An item that cannot be judged gets its error in its place."""
        with metrics.REWARD_SECONDS.time():
            results = await self._score_all(items)
        for result in results:
            if isinstance(result, Verdict):
                _OUTCOMES[result.outcome].inc()
        return results

    async def _score_all(self, items: Sequence[Item]) -> list[Result]:
        groups: dict[tuple[str, str], list[int]] = {}
        for number, item in enumerate(items):
            groups.setdefault((item.fen, item.task), []).append(number)
        results: list[Result] = [_NOT_JUDGED] * len(items)
        queue = self.pool.queue()
        # A single request with many positions of which many moves are searched must not fill the queue.
        many_moves = asyncio.Semaphore(max(1, self._settings.queue // (2 * MAX_LEGAL_MOVES)))
        since_yield = 0
        async with asyncio.TaskGroup() as group_tasks:
            for numbers in groups.values():
                group_tasks.create_task(self._score_group(items, numbers, results, queue, many_moves))
                since_yield += len(numbers)
                if since_yield >= _YIELD_EVERY:
                    since_yield = 0
                    await asyncio.sleep(0)
        return results

    async def _score_group(
        self,
        items: Sequence[Item],
        numbers: Sequence[int],
        results: list[Result],
        queue: RequestQueue,
        many_moves: asyncio.Semaphore,
    ) -> None:
        """Fills `results` at `numbers`. Their items have the same FEN and task, so they share searches."""
        to_judge = await self._read_group(items, numbers, results)
        if not to_judge:
            return
        position = read_position(items[numbers[0]].fen)
        moves = [answer for answer in to_judge.values() if isinstance(answer, MoveAnswer)]
        texts = [answer for answer in to_judge.values() if isinstance(answer, str)]
        searches_many_moves = bool(texts) or any(
            answer.scheme.needs_worst or answer.scheme.candidates for answer in moves
        )
        try:
            async with many_moves if searches_many_moves else nullcontext():
                if moves:
                    judged = await self._move_judge.judge(position, moves, queue)
                else:
                    judged = await self._rookworld_judge.policy(position, texts, queue)
        except RookeryError as error:  # concerns only these items; raised, it would cancel the whole batch
            judged = [error] * len(to_judge)
        for number, verdict in zip(to_judge, judged, strict=True):
            results[number] = verdict

    async def _read_group(
        self, items: Sequence[Item], numbers: Sequence[int], results: list[Result]
    ) -> dict[int, MoveAnswer | str]:
        """What must be judged, by number. The results of the other answers are filled in."""
        schemes = [items[number].scheme or self._settings.scheme for number in numbers]
        if self._reward_model is not None and any("model" in scheme for scheme in schemes):
            await self._reward_model.identify()
        fen = items[numbers[0]].fen
        to_judge: dict[int, MoveAnswer | str] = {}
        moves: dict[int, MoveAnswer] = {}
        for number in numbers:
            read = self._parse_or_error(items[number])
            if isinstance(read, MoveAnswer) and read.scheme.needs_reading:
                read = await asyncio.to_thread(with_reading, read, read_position(fen).board.fen())
            if isinstance(read, MoveAnswer):
                moves[number] = read
            elif isinstance(read, str):
                to_judge[number] = read
            else:
                results[number] = read
        for number, answer in (await with_custom(moves, fen)).items():
            if isinstance(answer, MoveAnswer):
                to_judge[number] = answer
            else:
                results[number] = answer
        return to_judge

    def _parse_or_error(self, item: Item) -> MoveAnswer | str | Result:
        """The move, or the text of a `P:` answer, that engines must judge; else the verdict or the error."""
        try:
            return self._parse(item)
        except RookeryError as error:
            free_frames(error)  # they hold the whole batch
            return error

    def _parse(self, item: Item) -> MoveAnswer | str | Verdict:
        task = item.task or MOVE
        if task not in TASKS:
            raise InvalidInput(f"no task {task[:QUOTED]!r}: choose from {', '.join(TASKS)}")
        for name, value, tasks in (("move", item.move, "A"), ("target", item.target, "PA")):
            if value and task not in tuple(tasks):
                of = " or ".join(map(repr, tasks))
                raise InvalidInput(f"{name} {value[:QUOTED]!r} is only for task {of}, not for {task!r}")
        position = read_position(item.fen)
        if task in ROOKWORLD_TASKS:
            judge = self._rookworld_judge
            if judged_by_target(task, item.scheme, item.target):
                return judge.target(task, position, item.response, item.target)
            return item.response if task == "P" else judge.state(item.fen, item.move, item.response)
        scheme = find_scheme(item.scheme or self._settings.scheme, self._custom)
        read_answer = first_line if item.task == GAME_TASK else extract
        answer = read_answer(item.response, truncated=item.truncated)
        if answer.missing:
            return self._refusal(answer.missing, scheme)
        reading = read_move(answer.text, position.board)
        if reading.move is None:
            return self._refusal(reading.outcome, scheme)
        legal_move = position.legal_move(reading.move)
        mentions = read_moves(item.response, position.board, most=scheme.candidates)
        return MoveAnswer(
            legal_move,
            reading.move,
            item.response,
            scheme=scheme,
            reward_version=self.version(scheme),
            named=mentions,
            candidates=tuple(dict.fromkeys(m.move for m in mentions if m.move is not None)),
        )

    def _refusal(self, outcome: Outcome, scheme: Scheme) -> Verdict:
        penalty = scheme.penalty(outcome)
        return Verdict(
            reward=penalty,
            outcome=outcome,
            reward_version=self.version(scheme),
            components={"penalty": penalty},
            engine=EngineStamp(self.pool.engine_id, 0),
        )


_NOT_JUDGED = EngineFault("not judged")
