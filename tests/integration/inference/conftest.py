"""One Redis for a module, and a client of the module's own `server`."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rookery.clients import InferenceClient
from rookery.streams import RunStreams
from tests.conftest import RedisServer
from tests.integration.inference.server_process import RUN, Server


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    redis.start()
    yield redis.url
    redis.stop()


@pytest.fixture(scope="module")
def streams(redis_url: str) -> RunStreams:
    return RunStreams(redis_url, RUN)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[InferenceClient]:
    async with InferenceClient(server.url, access=server.access, timeout_s=120.0) as client:
        yield client
