"""A client of the reward service finds a new replica by its name, and no call fails meanwhile."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import cast

import grpc
import pytest
from fastapi import FastAPI

from rookery import serving
from rookery.clients import reward
from rookery.clients.reward import RewardClient
from rookery.serving import Service
from rookery.v1 import reward_pb2, reward_pb2_grpc
from tests.conftest import free_port
from tests.unit.rookery.running import running

WITHIN_S = 120.0


class Names(asyncio.DatagramProtocol):
    """A DNS server of one name: for every other kind of record it has none."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        end = 12
        while data[end]:
            end += 1 + data[end]
        question = data[12 : end + 5]
        addresses = self.addresses if question[-4:] == struct.pack(">HH", 1, 1) else ()
        answer = data[:2] + struct.pack(">5H", 0x8180, 1, len(addresses), 0, 0) + question
        for address in addresses:  # Docker's own lets them live for 600 s too
            answer += struct.pack(">HHHIH", 0xC00C, 1, 1, 600, 4) + socket.inet_aton(address)
        assert self._transport
        self._transport.sendto(answer, addr)


class Counting(reward_pb2_grpc.RewardServiceServicer):
    """Takes a while, so that connections end under calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def ScoreBatch(  # noqa: N802
        self,
        request: reward_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext[reward_pb2.ScoreBatchRequest, reward_pb2.ScoreBatchResponse],
    ) -> reward_pb2.ScoreBatchResponse:
        self.calls += 1
        await asyncio.sleep(0.03)
        return reward_pb2.ScoreBatchResponse()

    def replica(self, host: str, grpc_port: int) -> Service:
        return Service(
            "reward", FastAPI(), host, free_port(), "PORT", grpc_port=grpc_port,
            add_grpc=lambda server: reward_pb2_grpc.add_RewardServiceServicer_to_server(self, server),  # type: ignore[no-untyped-call]
        )  # fmt: skip


@pytest.fixture
async def names() -> AsyncIterator[tuple[Names, int]]:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Names("127.0.0.1"), local_addr=("127.0.0.1", 0)
    )
    yield protocol, transport.get_extra_info("sockname")[1]
    transport.close()


async def test_a_new_replica_gets_its_share(
    names: tuple[Names, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CONNECTION_AGE_S", 0.2)
    monkeypatch.setattr(reward, "_LOOK_UP_EVERY_S", 0.1)
    monkeypatch.setattr(reward, "TRIES", 1)
    dns, dns_port = names
    old, new = Counting(), Counting()
    first = old.replica("127.0.0.1", 0)
    async with running(first):
        assert first.grpc_port
        target = f"dns://127.0.0.1:{dns_port}/reward.test:{first.grpc_port}"
        async with running(new.replica("127.0.0.2", first.grpc_port)), RewardClient(target) as client:
            await client.score([])
            assert not new.calls
            dns.addresses = ("127.0.0.1", "127.0.0.2")
            async with asyncio.timeout(WITHIN_S):
                while new.calls < 20:
                    await asyncio.gather(*(client.score([]) for _ in range(8)))
    assert old.calls
