"""The gRPC API of the reward service: `rookery.v1.RewardService`."""

from typing import Any

import grpc

from rookery.codec import item_from_proto, verdict_to_proto
from rookery.errors import InvalidInput, RookeryError, problem
from rookery.serving import grpc_errors
from rookery.trace import Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward.requests import MAX_ITEMS, counted
from services.reward.scorer import Scorer

SERVICE_NAME = reward_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]


class RewardServicer(reward_pb2_grpc.RewardServiceServicer):
    """Score and ScoreBatch with one scorer."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    async def Score(self, request: reward_pb2.ScoreRequest, context: Context) -> reward_pb2.ScoreResponse:  # noqa: N802
        async with grpc_errors(context):
            with counted("grpc"):
                verdict = await self._scorer.score(item_from_proto(request))
        return reward_pb2.ScoreResponse(verdict=verdict_to_proto(verdict))

    async def ScoreBatch(  # noqa: N802
        self, request: reward_pb2.ScoreBatchRequest, context: Context
    ) -> reward_pb2.ScoreBatchResponse:
        async with grpc_errors(context):
            with counted("grpc"):
                if len(request.items) > MAX_ITEMS:
                    raise InvalidInput(f"{len(request.items)} items in one batch: at most {MAX_ITEMS}")
                results = await self._scorer.score_batch([item_from_proto(item) for item in request.items])
        return reward_pb2.ScoreBatchResponse(items=[_batch_item(result) for result in results])


def _batch_item(result: Verdict | RookeryError) -> reward_pb2.ScoreBatchItem:
    if isinstance(result, RookeryError):
        return reward_pb2.ScoreBatchItem(problem=reward_pb2.Problem(**problem(result)))  # type: ignore[arg-type]
    return reward_pb2.ScoreBatchItem(verdict=verdict_to_proto(result))
