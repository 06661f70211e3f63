"""Who is told of a version when, with inference servers that hang, refuse or talk nonsense."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from rookery.config.trainer import TrainerSettings
from rookery.errors import Conflict, PeerFault, SetupError
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from services.trainer.versions import publisher as module
from services.trainer.versions.publisher import Publisher
from tests.integration.trainer.runs import events
from tests.waiting import until

pytestmark = pytest.mark.redis

GOOD = (200, "{}")


def adapter(number: int) -> Adapter:
    return Adapter(PolicyVersion(number, f"{number:064x}"), f"/adapters/{number}", "tiny")


class Server(ThreadingHTTPServer):
    """An inference server as the trainer sees it: answers /reload with `answer`, once `open` is set."""

    daemon_threads = False

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.told: list[int | str] = []
        self.answer: tuple[int, str] = GOOD
        self.open = threading.Event()
        self.open.set()
        super().__init__((host, port), _Reload)
        self.url = f"http://{host}:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.open.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    @property
    def behind(self) -> float | None:
        return REGISTRY.get_sample_value("rookery_server_behind_versions", {"server": self.url})


class _Reload(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.told.append(json.loads(body)["version"] if body else self.path)
        self.server.open.wait()
        status, text = self.server.answer
        with contextlib.suppress(ConnectionError):  # it has hung for too long
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


def publisher_of(
    streams: RunStreams, loop: asyncio.AbstractEventLoop, urls: str = "", *, store: str = ""
) -> Publisher:
    settings = TrainerSettings(model=Path(), run_dir=Path(), inference_urls=urls, adapter_store=store)
    return Publisher(streams.policy, settings, epoch=streams.take_over(), loop=loop)


class Setting:
    def __init__(self, redis_url: str, loop: asyncio.AbstractEventLoop, servers: int) -> None:
        self.streams = RunStreams(redis_url, "r")
        self.servers = [Server() for _ in range(servers)]
        urls = ",".join(server.url for server in self.servers)
        self.publisher = publisher_of(self.streams, loop, urls)

    def publish(self, *numbers: int) -> None:
        for number in numbers:
            self.publisher.publish(adapter(number))


@pytest.fixture
def two(redis_url: str) -> Iterator[Setting]:
    yield from setting(redis_url, 2)


@pytest.fixture
def one(redis_url: str) -> Iterator[Setting]:
    yield from setting(redis_url, 1)


def setting(redis_url: str, servers: int) -> Iterator[Setting]:
    with events() as loop:
        made = Setting(redis_url, loop, servers)
        yield made
        asyncio.run_coroutine_threadsafe(made.publisher.close(), loop).result(timeout=120)
        for server in made.servers:
            server.close()


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_S", 0.3)
    monkeypatch.setattr(module, "GRACE_S", 0.1)


def waits(call: Callable[[], None]) -> list[tuple[int, float]]:
    """Each wait of the publisher's: for how many servers, and its own limit in seconds."""
    asked: list[tuple[int, float]] = []
    wait = asyncio.wait

    async def watched(tasks: set["asyncio.Task[None]"], *, timeout: float, return_when: str) -> object:
        asked.append((len(tasks), timeout))
        return await wait(tasks, timeout=timeout, return_when=return_when)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.asyncio, "wait", watched)
        call()
    return asked


def test_every_server_is_told_every_version_and_the_record_goes_first(two: Setting) -> None:
    two.publish(0, 1, 2)
    two.publisher.wait()
    assert [server.told for server in two.servers] == 2 * [[0, 1, 2]]
    assert [server.behind for server in two.servers] == [0, 0]
    assert two.streams.policy.read() == adapter(2)


def test_a_hung_server_is_left_behind_and_told_the_newest_version_later(two: Setting) -> None:
    hung, good = two.servers
    hung.open.clear()
    two.publish(0)
    assert waits(lambda: two.publish(1))[0][0] == 2, "the first time it is waited for"
    others = waits(lambda: two.publish(2, 3, 4))
    assert {servers for servers, _ in others} <= {1}, "and no more, as long as it is silent"
    until(lambda: good.told == [0, 1, 2, 3, 4])
    assert hung.told == [0], "one reload is under way, none waits behind it"
    until(lambda: (hung.behind, good.behind) == (5, 0))
    hung.open.set()
    until(lambda: hung.told == [0, 4])
    until(lambda: hung.behind == 0)
    two.publish(5)
    two.publisher.wait()
    assert hung.told == [0, 4, 5], "it is waited for again"


def test_a_single_hung_server_is_waited_for_once(one: Setting) -> None:
    one.servers[0].open.clear()
    one.publish(0)
    [(_, limit)] = waits(lambda: one.publish(1))
    assert limit <= module.FIRST_S
    assert waits(lambda: one.publish(2, 3)) == []
    assert one.streams.policy.read() == adapter(3)


def test_the_others_get_a_moment_once_the_first_has_answered(two: Setting) -> None:
    slow, _ = two.servers
    slow.open.clear()
    two.publish(0)
    until(lambda: two.servers[1].behind == 0)
    assert max(limit for _, limit in waits(two.publisher.wait)) <= module.GRACE_S


@pytest.mark.parametrize(
    "answer",
    [(200, "<html>welcome</html>"), (200, "[]"), (200, ""), (500, "{}")],
    ids=["no json", "no object", "nothing", "a fault"],
)
def test_an_answer_that_is_none_is_a_failed_reload_that_is_tried_again(
    one: Setting, answer: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    server = one.servers[0]
    server.answer = answer
    one.publish(0, 1)
    one.publisher.wait()
    assert server.behind == 2
    assert f"{server.url} did not answer the reload of policy-v000001" in caplog.text
    server.answer = GOOD
    one.publisher.republish(adapter(1))
    until(lambda: server.behind == 0)
    assert server.told == [0, 1, 1]
    one.publisher.republish(adapter(1))
    one.publisher.wait()
    assert server.told == [0, 1, 1], "who has taken it is not told again"


def test_a_refusal_is_an_answer(one: Setting, caplog: pytest.LogCaptureFixture) -> None:
    server = one.servers[0]
    server.answer = (409, '{"detail": "older"}')
    one.publish(0)
    one.publisher.wait()
    one.publisher.republish(adapter(0))
    one.publish(1)
    one.publisher.wait()
    assert server.told == [0, 1]
    assert "refused policy-v000000" in caplog.text


def test_a_refused_token_ends_training(one: Setting) -> None:
    one.servers[0].answer = (401, "{}")
    with pytest.raises(SetupError, match=r"set ROOKERY_TOKEN or --token-file"):
        one.publish(0)
        one.publisher.wait()


def test_a_server_that_joins_is_told_at_once_and_one_that_leaves_is_forgotten(
    redis_url: str, hosts: dict[str, list[str]]
) -> None:
    first = Server()
    second = Server("127.0.0.2", first.server_port)
    name = f"dns:///inference.test:{first.server_port}"
    hosts["inference.test"] = []
    streams = RunStreams(redis_url, "r")
    with events() as loop:
        publisher = publisher_of(streams, loop, name)
        publisher.publish(adapter(0))  # nobody is there yet
        hosts["inference.test"] = ["127.0.0.1"]
        until(lambda: first.told == [0])
        publisher.publish(adapter(1))
        hosts["inference.test"] = ["127.0.0.1", "127.0.0.2"]
        until(lambda: second.told == [1])
        until(lambda: second.behind == 0)
        hosts["inference.test"] = ["127.0.0.2"]
        until(lambda: first.behind is None)
        publisher.publish(adapter(2))
        until(lambda: second.told == [1, 2])
        assert first.told == [0, 1]
        asyncio.run_coroutine_threadsafe(publisher.close(), loop).result(timeout=120)
    first.close()
    second.close()


def test_a_store_that_is_away_stops_nothing_and_gets_the_version_later(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, blocked = tmp_path / "policy-v000000", tmp_path / "store"
    folder.mkdir()
    for name in ("adapter_model.safetensors", "optimizer.safetensors", "state.json", "SHA256SUMS"):
        (folder / name).write_text(name)
    committed = replace(adapter(0), path=str(folder))
    streams = RunStreams(redis_url, "r")
    with events() as loop:
        publisher = publisher_of(streams, loop, store=f"file://{blocked}/adapters")
        blocked.write_text("in the way")
        publisher.publish(committed)
        assert streams.policy.read() == committed
        assert "policy-v000000 is not in the store" in caplog.text
        blocked.unlink()
        publisher.republish(committed)
        asyncio.run_coroutine_threadsafe(publisher.close(), loop).result(timeout=120)
    kept = {path.name for path in (blocked / "adapters" / "policy-v000000").iterdir()}
    assert kept == {"adapter_model.safetensors", "SHA256SUMS"}


def test_a_first_look_up_that_fails_is_raised(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(urls: str) -> AsyncIterator[tuple[str, ...]]:
        raise ZeroDivisionError(urls)
        yield ()

    monkeypatch.setattr(module.replicas, "follow", broken)
    streams = RunStreams(redis_url, "r")
    with events() as loop:
        publisher = publisher_of(streams, loop, "http://a")
        with pytest.raises(ZeroDivisionError, match="http://a"):
            publisher.publish(adapter(0))


def test_closing_does_not_wait_for_a_hung_server(one: Setting) -> None:
    one.servers[0].open.clear()
    one.publish(0)
    until(lambda: one.servers[0].told == [0])
    # The fixture closes it within its own limit.


def test_servers_sleep_after_their_reload_and_are_woken(
    two: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.0,))
    monkeypatch.setattr(module, "SLEEP_PAUSES_S", (0.0,))
    well, ill = two.servers
    ill.open.clear()
    two.publish(0)
    two.publisher.wait()
    threading.Timer(0.05, ill.open.set).start()
    two.publisher.sleep()
    assert ill.told == [0, "/sleep"], "after the reload that it was late with"
    ill.answer = (503, '{"detail": "vLLM cannot wake up: out of memory"}')
    two.publisher.wake_up()
    assert well.told == [0, "/sleep", "/wake_up"]
    assert ill.told == [0, "/sleep", "/wake_up", "/wake_up"]
    assert "vLLM cannot wake up: out of memory" in caplog.text
    ill.answer = GOOD
    two.publisher.republish(adapter(0))
    two.publisher.wait()
    assert (well.told[-1], ill.told[-1]) == ("/wake_up", 0), "a reload wakes it"
    ill.answer = (503, '{"detail": "requests in flight did not end"}')
    with pytest.raises(PeerFault, match="requests in flight did not end"):
        two.publisher.sleep()
    assert ill.told[-2:] == ["/sleep", "/sleep"]
    ill.answer = (409, '{"detail": "this server was started without sleep=true"}')
    with pytest.raises(Conflict, match="started without sleep=true"):
        two.publisher.sleep()
