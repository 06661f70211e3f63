"""(FEN, response) to Verdict: reads the answer, asks the engines, applies the scheme.

A bad answer is a Verdict; a bad question raises `InvalidInput`; a bad engine raises `EngineFault`.
An answer without a legal move costs no search: its verdict names the engine and zero nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import chess

from rookery import metrics
from rookery.errors import EngineFault, InvalidInput, RookeryError, SetupError
from rookery.trace import EngineStamp, Evaluation, Outcome, Verdict
from services.reward.cache import Cache
from services.reward.engine import Analysis, Query, find_engine
from services.reward.notation import Reading, read_move
from services.reward.parse import extract
from services.reward.pool import EnginePool
from services.reward.position import Play, Position, read_position
from services.reward.schemes import PENALTIES, Scheme, find_scheme
from services.reward.winprob import CHECKMATE, DRAW, win_probability

if TYPE_CHECKING:
    from services.reward.settings import RewardSettings

CACHE_ENTRIES = 200_000
"""About 100 MB when full."""

TASKS = ("move",)


@dataclass(frozen=True, slots=True)
class Item:
    """One answer to judge. Empty `task` and `scheme` mean the defaults."""

    fen: str
    response: str
    task: str = ""
    scheme: str = ""
    truncated: bool = False


class Scorer:
    """Judges answers with one pool of engines. Use it from one event loop."""

    def __init__(self, pool: EnginePool, settings: RewardSettings) -> None:
        self.pool = pool
        self._settings = settings
        self._analyses: Cache[Query, Analysis] = Cache(pool.search, size=CACHE_ENTRIES)

    @classmethod
    async def start(cls, settings: RewardSettings) -> Self:
        """A scorer with its engines running.

        Raises:
            SetupError: there is no Stockfish, or it does not work.
        """
        path = find_engine(settings.engine_path)
        pool = EnginePool(
            path,
            engines=settings.engines,
            hash_mb=settings.hash_mb,
            queue=settings.queue,
            deadline_s=settings.deadline_s,
        )
        try:
            return cls(await pool.start(), settings)
        except RookeryError as error:
            raise SetupError(f"{str(path)!r} does not work as an engine: {error}") from error

    async def close(self) -> None:
        """Ends the engines."""
        await self.pool.close()

    def version(self, scheme: Scheme) -> str:
        """Everything a reward depends on beside the question."""
        settings = self._settings
        engine = self.pool.engine_id.lower().replace(" ", "-")
        return f"{scheme.id}/lichess-k{settings.k:g}/nodes-{settings.nodes}/hash-{settings.hash_mb}/{engine}"

    async def score(self, item: Item) -> Verdict:
        """The verdict of one answer.

        Raises:
            InvalidInput: the FEN, task or scheme cannot be judged.
            Unavailable: the engines are away or overrun.
        """
        with metrics.REWARD_SECONDS.time():
            scheme = find_scheme(item.scheme or self._settings.scheme)
            if item.task and item.task not in TASKS:
                raise InvalidInput(f"no task {item.task!r}: choose from {', '.join(TASKS)}")
            position = read_position(item.fen)
            reading = _read(item, position)
            if reading.move is None:
                verdict = self._refusal(reading.outcome, scheme)
            else:
                verdict = await self._judge(position, reading.move, scheme)
        metrics.REWARD_OUTCOMES.labels(verdict.outcome).inc()
        return verdict

    async def score_batch(self, items: Sequence[Item]) -> list[Verdict | RookeryError]:
        """Verdicts in the order of `items`; an item that cannot be judged leaves its error in its slot."""
        return await asyncio.gather(*(self._score_or_error(item) for item in items))

    async def _score_or_error(self, item: Item) -> Verdict | RookeryError:
        try:
            return await self.score(item)
        except RookeryError as error:
            return error

    def _refusal(self, outcome: Outcome, scheme: Scheme) -> Verdict:
        return Verdict(
            reward=PENALTIES[outcome],
            outcome=outcome,
            reward_version=self.version(scheme),
            components={"format": PENALTIES[outcome]},
            engine=EngineStamp(self.pool.engine_id, 0),
        )

    async def _judge(self, position: Position, move: chess.Move, scheme: Scheme) -> Verdict:
        root = await self._search(position)
        best = _best(position, root)
        played = position.play(move)
        own = None if played.settled or played is best else await self._search(position, move)
        eval_after = played.settled or (own or root).evaluation
        win_before = self._win(best, root.evaluation)
        win_after = self._win(played, eval_after)
        regret = max(0.0, win_before - win_after)
        quality = scheme.quality(regret)
        return Verdict(
            reward=quality,
            outcome=Outcome.LEGAL,
            reward_version=self.version(scheme),
            move=played.move,
            best=best.move,
            win_before=win_before,
            win_after=win_after,
            regret=regret,
            eval_before=root.evaluation,
            eval_after=eval_after,
            components={"quality": quality, "format": 0.0},
            engine=EngineStamp(self.pool.engine_id, root.nodes + (own.nodes if own else 0)),
        )

    async def _search(self, position: Position, move: chess.Move | None = None) -> Analysis:
        only = None if move is None else position.to_engine(move)
        return await self._analyses.get(Query(position.key, self._settings.nodes, only))

    def _win(self, play: Play, evaluation: Evaluation) -> float:
        if play.settled is None:
            return win_probability(evaluation, k=self._settings.k)
        return CHECKMATE if play.settled.mate else DRAW


def _read(item: Item, position: Position) -> Reading:
    answer = extract(item.response, truncated=item.truncated)
    return Reading(answer.missing) if answer.missing else read_move(answer.text, position.board)


def _best(position: Position, root: Analysis) -> Play:
    try:
        return position.play(position.from_engine(root.best))
    except chess.IllegalMoveError as error:
        raise EngineFault(f"the engine answers nonsense: {error}") from error
