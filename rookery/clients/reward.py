"""The client of the reward service, over gRPC: for one group, or for many at once."""

import json
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rookery.access import OPEN, Access
from rookery.clients.score_items import TRIES, ItemFault, PendingScores, raise_refusal, reason_of
from rookery.clients.score_stream import Groups, ScoreStream, Slots
from rookery.errors import InvalidInput, PeerFault, RookeryError
from rookery.retries import PAUSES_S, retry
from rookery.trace import ScoreItem, Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc

logger = logging.getLogger(__name__)

Key = TypeVar("Key")

_HEALTH_TIMEOUT_S = 2.0
_MAX_MESSAGE_BYTES = 64 << 20
_LOOK_UP_EVERY_S = 5.0
"""Names are looked up again when a connection ends, but not more often than this; gRPC's default is 30 s."""
_LOG_EVERY_S = 1.0
"""When a service ends, the calls of all groups in flight fail at once. Only one of them is logged."""
_ROUND_ROBIN = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


class RewardClient:
    """gRPC client that spreads calls over every address the target resolves to.

    Use `dns:///reward:50051` so that replicas share the load. With `wait_for_ready` a call outlives
    a service that restarts: it waits for a connection, within its timeout, instead of failing at once.
    """

    def __init__(
        self, target: str, *, access: Access = OPEN, timeout_s: float = 60.0, wait_for_ready: bool = False
    ) -> None:
        self._timeout_s = timeout_s
        self._metadata = access.metadata
        self._wait_for_ready = wait_for_ready
        self._channel = access.grpc_channel(
            target,
            [
                ("grpc.service_config", _ROUND_ROBIN),
                ("grpc.dns_min_time_between_resolutions_ms", round(_LOOK_UP_EVERY_S * 1000)),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ],
        )
        self._stub = reward_pb2_grpc.RewardServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._health = health_pb2_grpc.HealthStub(self._channel)
        self._log_after = 0.0

    async def score(self, items: Sequence[ScoreItem], *, scheme: str = "") -> list[Verdict]:
        """Verdicts in the order of `items`; all or nothing. `scheme` is for items that name none. Raises
        `InvalidInput` if the service refuses an item, quoting it; `SetupError` if the service demands another
        token; `PeerFault` if there is no answer after several attempts."""
        slots = await self._score(items, scheme)
        for slot in slots:
            if isinstance(slot, InvalidInput):
                raise slot
        for slot in slots:
            if isinstance(slot, PeerFault):
                raise PeerFault(f"reward service: {slot} after {TRIES} attempts")
        return [slot for slot in slots if isinstance(slot, Verdict)]

    def stream(
        self, groups: Groups[Key], *, scheme: str = "", items: int = 2048
    ) -> AsyncGenerator[tuple[Key, list[Verdict | RookeryError]]]:
        """Scores `groups`, pairs of a key and its items, and yields each key with the results of its items.

        For callers with thousands of answers. At most `items` items are in flight or not yet yielded.
        Groups are yielded as soon as they are scored, in any order, each exactly once, even if a replica
        dies. The result of an item is a verdict, `InvalidInput` or `PeerFault`. Close the iterator
        (`contextlib.aclosing`) to stop early.

        Raises:
            InvalidInput: the service refuses a whole group, because it has too many items or bytes.
            SetupError: the service demands another token.
            PeerFault: no replica answered for a group after several attempts.
        """
        return ScoreStream[Key](lambda group: self._score(group, scheme), limit=items).run(groups)

    async def _score(self, items: Sequence[ScoreItem], scheme: str) -> Slots:
        """Verdicts or errors in the order of the items. An item keeps the fault of the last attempt. Raises
        `InvalidInput` if the service refuses or does not understand the request; `SetupError` if the service
        demands another token; `PeerFault` if there is no answer after several attempts."""
        pending = PendingScores(items, scheme=scheme)
        failures = (grpc.aio.AioRpcError, PeerFault)
        try:
            await retry(lambda: self._ask(pending), on=failures, pauses_s=PAUSES_S, failed=self._log_failure)
        except ItemFault:
            pass  # its slot says so: the other items have their results
        except failures as error:
            raise PeerFault(f"reward service: {reason_of(error)} after {TRIES} attempts") from error
        return pending.slots

    async def _ask(self, pending: PendingScores) -> None:
        request = reward_pb2.ScoreBatchRequest(items=pending.open)
        try:
            response = await self._stub.ScoreBatch(
                request, timeout=self._timeout_s, metadata=self._metadata, wait_for_ready=self._wait_for_ready
            )
        except grpc.aio.AioRpcError as error:
            raise_refusal(error)
            raise
        pending.take(response.items)

    def _log_failure(self, error: Exception, failures: int) -> None:
        if time.monotonic() >= self._log_after:
            self._log_after = time.monotonic() + _LOG_EVERY_S
            logger.warning("reward: %s; attempt %d of %d failed", reason_of(error), failures, TRIES)

    async def ready(self) -> bool:
        """Whether a replica reports that it is serving."""
        try:
            answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=_HEALTH_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close(grace=None)
