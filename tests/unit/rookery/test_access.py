"""Who gets in: the token over HTTP, WebSocket and gRPC, and certificates in both directions."""

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from fastapi import FastAPI, WebSocket
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from rookery.access import OPEN, TOKEN_VARIABLE, Access, AccessSettings
from rookery.clients import InferenceClient, RewardClient, ScoreItem
from rookery.errors import InvalidInput, PeerFault, SetupError
from rookery.serving import Service, add_probes, serve
from rookery.v1 import reward_pb2, reward_pb2_grpc
from tests.certificates import Authority
from tests.conftest import free_port

TOKEN = "a-token-for-the-tests-0123456789"
RIGHT = Access(TOKEN)
NAME = "rookery.v1.RewardService"


class RefusingReward(reward_pb2_grpc.RewardServiceServicer):
    """Refuses every batch as the reward service refuses a bad one."""

    async def ScoreBatch(  # noqa: N802
        self,
        request: reward_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext[reward_pb2.ScoreBatchRequest, reward_pb2.ScoreBatchResponse],
    ) -> reward_pb2.ScoreBatchResponse:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no fen 'x'")
        return reward_pb2.ScoreBatchResponse()


def make_service(access: Access) -> Service:
    """HTTP, WebSocket and gRPC. Its gRPC service answers every request with INVALID_ARGUMENT."""
    app = FastAPI()
    add_probes(app)

    @app.get("/v1/models")
    async def models() -> dict[str, list[dict[str, str]]]:
        return {"data": [{"id": "m", "root": "/m"}]}

    @app.websocket("/talk")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()

    reward = RefusingReward()
    return Service(
        "guarded",
        app,
        "127.0.0.1",
        free_port(),
        "PORT",
        access,
        grpc_port=0,
        add_grpc=lambda server: reward_pb2_grpc.add_RewardServiceServicer_to_server(reward, server),
        grpc_services=(NAME,),
    )


@asynccontextmanager
async def serving(access: Access) -> AsyncIterator[tuple[Service, str]]:
    """The service, once it listens, and its URL."""
    service = make_service(access)
    task = asyncio.create_task(serve(service))
    try:
        async with asyncio.timeout(10.0):
            while True:
                try:
                    _, writer = await asyncio.open_connection(service.host, service.port)
                except OSError:
                    await asyncio.sleep(0.01)
                    continue
                writer.close()
                await writer.wait_closed()
                break
        yield service, f"{access.scheme}://{service.host}:{service.port}"
    finally:
        service.stopping.set()
        await task


async def score(service: Service, access: Access, scheme: str = "") -> None:
    """Asks over gRPC. Raises InvalidInput if the call is let in, else what refused it."""
    target = f"{scheme}127.0.0.1:{service.grpc_port}"
    async with RewardClient(target, access=access, timeout_s=5.0) as client:
        await client.score([ScoreItem("x", "e4")])


async def test_http_without_the_token_gets_401_on_every_route_but_probes_and_metrics() -> None:
    async with serving(RIGHT) as (_, url), httpx.AsyncClient(base_url=url) as http:
        for path in ("/v1/models", "/openapi.json", "/docs", "/no-such-route", "//healthz", "/healthz/"):
            refused = await http.get(path)
            assert (path, refused.status_code) == (path, 401)
            assert refused.headers["www-authenticate"] == 'Bearer realm="rookery"'
            assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json() == {
            "type": "urn:rookery:problem:unauthorized",
            "title": "Unauthorized",
            "status": 401,
            "detail": "GET /healthz/ needs the token of this service: Authorization: Bearer TOKEN",
        }
        for said in (
            TOKEN,
            f"Basic {TOKEN}",
            f"Basic {b64encode(TOKEN.encode()).decode()}",
            "Basic é",
            f"Bearer {TOKEN}x",
            "Bearer",
            f"Bearer {TOKEN[:-1]}",
            "Bearer é",
        ):
            headers = {"Authorization": said.encode()}
            assert (await http.get("/v1/models", headers=headers)).status_code == 401
        for said in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
            assert (await http.get("/v1/models", headers={"Authorization": said})).status_code == 200
        assert (await http.get("/v1/models", auth=("anybody", TOKEN))).status_code == 200
        assert (await http.get("/v1/models", auth=(TOKEN, ""))).status_code == 401
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await http.get(path)).status_code == 200


async def test_metrics_can_be_guarded_too() -> None:
    async with (
        serving(Access(TOKEN, guard_metrics=True)) as (_, url),
        httpx.AsyncClient(base_url=url) as http,
    ):
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers=RIGHT.headers)).status_code == 200
        assert (await http.get("/readyz")).status_code == 200


async def test_a_web_socket_needs_the_token() -> None:
    handshake = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    async with serving(RIGHT) as (_, url), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/talk", headers=handshake)).status_code in (401, 403)


async def test_our_clients_send_the_token_and_say_what_is_wrong_without() -> None:
    async with serving(RIGHT) as (service, url):
        async with InferenceClient(url, access=RIGHT) as client:
            assert await client.served() == {"m": Path("/m")}
        with pytest.raises(InvalidInput, match="no fen 'x'"):
            await score(service, RIGHT)
        async with InferenceClient(url) as client:
            with pytest.raises(SetupError, match=r"/v1/models: 401 .*needs the token of this service"):
                await client.served()
        for wrong in (OPEN, Access("another-token-0123456789")):
            with pytest.raises(SetupError, match=r"UNAUTHENTICATED .*ScoreBatch needs the token"):
                await score(service, wrong)


async def test_over_grpc_reflection_is_guarded_and_health_is_open() -> None:
    async with (
        serving(RIGHT) as (service, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel,
    ):
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=NAME))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        # Nothing is ever sent: the refusal does not wait for a first request.
        stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        async with asyncio.timeout(5.0):
            assert await stream.code() == grpc.StatusCode.UNAUTHENTICATED
        asked = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=RIGHT.metadata
        )
        assert [name.name for name in (await asked.read()).list_services_response.service]


async def test_a_stream_of_groups_ends_at_once_with_a_wrong_token() -> None:
    async with serving(RIGHT) as (service, _), RewardClient(f"127.0.0.1:{service.grpc_port}") as client:
        with pytest.raises(SetupError, match="needs the token"):
            async for _ in client.stream([("group", [ScoreItem("x", "e4")])]):
                pass


async def test_with_an_authority_both_sides_must_show_a_certificate_of_it(tmp_path: Path) -> None:
    ours = Authority(tmp_path)
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign").sign("stranger")
    server, member = ours.sign("reward"), ours.sign("rollouts")
    async with serving(server) as (service, url):
        assert url.startswith("https://")
        async with InferenceClient(url, access=member) as client:
            assert await client.served() == {"m": Path("/m")}
        with pytest.raises(InvalidInput, match="no fen 'x'"):
            await score(service, member)
        only_checks = Access(ca=ours.ca)
        for refused in (foreign, only_checks):
            async with InferenceClient(url, access=refused) as client:
                with pytest.raises(PeerFault, match=r"(?i)certificate|disconnected|ReadError"):
                    await client.served()
            async with RewardClient(f"127.0.0.1:{service.grpc_port}", access=refused) as health:
                assert not await health.ready()


async def test_without_an_authority_callers_need_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority(tmp_path)
    async with serving(ours.sign("reward", mutual=False)) as (service, url):
        async with InferenceClient(url, access=Access(ca=ours.ca)) as client:
            assert await client.served() == {"m": Path("/m")}
        with pytest.raises(InvalidInput, match="no fen 'x'"):
            await score(service, Access(ca=ours.ca))
        with pytest.raises(PeerFault):
            await score(service, OPEN, "https://")
        with monkeypatch.context() as system, pytest.raises(InvalidInput, match="no fen 'x'"):
            system.setenv("SSL_CERT_FILE", str(ours.ca))
            await score(service, OPEN, "https://")
        with pytest.raises(ssl.SSLCertVerificationError):
            _, port = url.rsplit(":", 1)
            await asyncio.open_connection("localhost", int(port), ssl=ssl.create_default_context())


@pytest.mark.parametrize(
    ("host", "access", "status"),
    [
        *(
            (host, OPEN, 200)
            for host in ("localhost", "LOCALHOST:80", "127.0.0.1:9", "127.8.8.8", "[::1]:80", "")
        ),
        *((host, OPEN, 400) for host in ("evil.example", "localhost.evil.example:80", "10.0.0.1", "[::1")),
        ("evil.example", RIGHT, 200),
    ],
)
async def test_a_service_on_loopback_without_a_token_answers_to_loopback_names_alone(
    host: str, access: Access, status: int
) -> None:
    async with serving(access) as (_, url), httpx.AsyncClient(base_url=url, headers=access.headers) as http:
        answer = await http.get("/v1/models", headers={"Host": host})
        assert answer.status_code == status
        if status == 400:
            assert answer.json()["detail"].startswith(f"host {host!r}: without a token")
            assert (await http.get("/healthz", headers={"Host": host})).status_code == 400


@pytest.mark.parametrize(
    ("host", "access", "warned"),
    [("0.0.0.0", OPEN, True), ("127.0.0.1", OPEN, False), ("::1", OPEN, False), ("localhost", OPEN, False),
     ("0.0.0.0", RIGHT, False), ("reward.local", OPEN, True)],
)  # fmt: skip
def test_whoever_listens_to_a_network_without_a_token_says_so(
    host: str, access: Access, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    access.warn_if_open("reward", host)
    assert ("listens on" in caplog.text) is warned


class Guarded(AccessSettings):
    """The settings of some service."""


def test_the_token_comes_from_the_file_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Guarded.parse([], prog="x").access == OPEN
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-environment-0")
    environment = Guarded.parse([], prog="x").access
    assert environment.token == "of-the-environment-0"
    assert environment.player_options == {"key-env": "ROOKERY_TOKEN"}
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    given = Guarded.parse(["--token-file", str(file)], prog="x")
    assert given.access.token == TOKEN
    assert given.access.player_options == {"key-file": file}
    assert given.access_values == {"token_file": file}
    assert TOKEN not in repr(given.access)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert OPEN.with_key("", Path("~/token")).token == TOKEN
    monkeypatch.setenv("ROOKERY_TOKEN_FILE", str(file))
    assert AccessSettings().access.token == TOKEN


@pytest.mark.parametrize("text", ["", "short", "a token with spaces in it", "päßwörter-sind-keine"])
def test_what_is_no_token_is_refused_and_not_quoted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(SetupError, match="has no token of at least 16") as refused:
        _ = Guarded.parse(["--token-file", str(file)], prog="x").access
    assert not text or text not in str(refused.value)


def test_a_key_that_http_cannot_send_is_refused_and_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("sk-abc\u2026xyz", "one\ntwo"):
        monkeypatch.setenv("KEY", key)
        with pytest.raises(SetupError, match=r"^KEY has characters that no HTTP header may have"):
            OPEN.with_key("KEY", None)


def test_a_variable_without_a_token_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "")
    with pytest.raises(SetupError, match="ROOKERY_TOKEN has no token"):
        _ = Guarded.parse([], prog="x").access


def test_an_empty_path_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN_FILE", "TLS_CERT", "TLS_KEY", "TLS_CA"):
        monkeypatch.setenv(f"ROOKERY_{name}", "")
    assert Guarded.parse([], prog="x").access == OPEN


def test_bad_certificates_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.sign("one"), authority.sign("other")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for flags, why in (
        (["--tls-ca", str(text)], r"no certificates in .*text\.pem"),
        (["--tls-cert", str(text), "--tls-key", str(one.key)], r"text\.pem.* not a certificate and its key"),
        (
            ["--tls-cert", str(one.cert), "--tls-key", str(other.key)],
            "not a certificate and its key.*MISMATCH",
        ),
    ):
        with pytest.raises(SetupError, match=why):
            _ = Guarded.parse(flags, prog="x").access
    assert Guarded.parse(["--tls-cert", str(one.cert), "--tls-key", str(one.key)], prog="x").access.cert


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="No such file"):
        _ = Guarded.parse(["--token-file", str(tmp_path / "none")], prog="x").access
    with pytest.raises(SetupError, match="give both --tls-cert and --tls-key"):
        Guarded.parse(["--tls-cert", "a.pem"], prog="x")
    with pytest.raises(SetupError, match=r"cannot read .*none.* \(--tls-cert"):
        _ = Guarded.parse(["--tls-ca", str(tmp_path / "none")], prog="x").access
