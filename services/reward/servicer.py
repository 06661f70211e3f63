"""The gRPC API of the reward service: `rookery.v1.RewardService`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from rookery.codec import verdict_to_proto
from rookery.errors import InvalidInput, RookeryError
from rookery.serving import grpc_errors, problem
from rookery.trace import Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward.bodies import MAX_ITEMS
from services.reward.counting import counted
from services.reward.scorer import Item, Scorer
from services.reward.stream import Context, ScoreStream

logger = logging.getLogger(__name__)

SERVICE_NAME = reward_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name


class RewardServicer(reward_pb2_grpc.RewardServiceServicer):
    """Score, ScoreBatch and ScoreStream with one scorer. Open streams end when `stopping` is set."""

    def __init__(self, scorer: Scorer, *, stopping: asyncio.Event | None = None) -> None:
        self._scorer = scorer
        self._stopping = stopping or asyncio.Event()

    async def Score(self, request: reward_pb2.ScoreRequest, context: Context) -> reward_pb2.ScoreResponse:  # noqa: N802
        async with grpc_errors(context):
            with counted("grpc"):
                verdict = await self._scorer.score(_item(request))
        return reward_pb2.ScoreResponse(verdict=verdict_to_proto(verdict))

    async def ScoreBatch(  # noqa: N802
        self, request: reward_pb2.ScoreBatchRequest, context: Context
    ) -> reward_pb2.ScoreBatchResponse:
        async with grpc_errors(context):
            slots = await self._judge(request.items)
        return reward_pb2.ScoreBatchResponse(items=slots)

    async def ScoreStream(  # noqa: N802
        self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest], context: Context
    ) -> None:
        await ScoreStream(self._judge_or_refuse, context, stopping=self._stopping).run(requests)

    async def _judge(self, requests: Sequence[reward_pb2.ScoreRequest]) -> list[reward_pb2.ScoreBatchItem]:
        with counted("grpc"):
            if len(requests) > MAX_ITEMS:
                raise InvalidInput(f"{len(requests)} items in one batch: at most {MAX_ITEMS}")
            results = await self._scorer.score_batch([_item(request) for request in requests])
        return [_slot(result) for result in results]

    async def _judge_or_refuse(
        self, requests: Sequence[reward_pb2.ScoreRequest]
    ) -> list[reward_pb2.ScoreBatchItem]:
        try:
            return await self._judge(requests)
        except RookeryError as error:
            logger.log(error.log_level, "grpc: %s", error)
            return [_slot(error)] * len(requests)


def _item(request: reward_pb2.ScoreRequest) -> Item:
    return Item(
        request.fen, request.response, request.task, request.scheme, request.truncated, move=request.move
    )


def _slot(result: Verdict | RookeryError) -> reward_pb2.ScoreBatchItem:
    if isinstance(result, RookeryError):
        return reward_pb2.ScoreBatchItem(problem=reward_pb2.Problem(**problem(result)))  # type: ignore[arg-type]
    return reward_pb2.ScoreBatchItem(verdict=verdict_to_proto(result))
