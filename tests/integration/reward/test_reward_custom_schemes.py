"""Reward functions of users as schemes: real modules, a real server, a real engine."""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rookery.config.reward import RewardSettings
from rookery.errors import InvalidInput, PeerFault, SetupError
from rookery.http_pool import HttpPool
from rookery.trace import ScoreItem, Verdict
from services.reward import custom_schemes
from services.reward.scorer import Scorer

pytestmark = pytest.mark.stockfish

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"

MODULE = """
CALLS = []

def brevity(completions, *, fen, move, **kwargs):
    CALLS.append((completions, fen, move))
    return [1 / len(text) for text in completions]

async def captures(completions, *, move, **kwargs):
    return [2.0 if uci == "f3g5" else -2.0 for uci in move]

captures.low, captures.high, captures.version = -2, 2, "7"

def broken(completions, **kwargs):
    raise KeyError("no such thing")

def short(completions, **kwargs):
    return [0.5]

def beyond(completions, **kwargs):
    return [1.5 for _ in completions]

def stops(completions, **kwargs):
    return [next(iter(()))]

def exits(completions, **kwargs):
    raise SystemExit(3)

def nothing(completions, **kwargs):
    return [None for _ in completions]
"""

Start = Callable[..., Awaitable[Scorer]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module that can be imported, with a name of the test's own."""
    name = f"rewards_of_{request.node.name.partition('[')[0]}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
async def start(stockfish_path: str) -> AsyncIterator[Start]:
    path = Path(stockfish_path)
    async with AsyncExitStack() as stack:

        async def start(schemes: str, scheme: str = "delta") -> Scorer:
            settings = RewardSettings(engine_path=path, engines=1, schemes=schemes, scheme=scheme)
            return await stack.enter_async_context(await Scorer.start(settings))

        yield start


async def _verdicts(scorer: Scorer, *responses: str, scheme: str = "") -> list[Verdict]:
    results = await scorer.score_batch([ScoreItem(FEN, response, scheme=scheme) for response in responses])
    assert all(isinstance(result, Verdict) for result in results), results
    return [result for result in results if isinstance(result, Verdict)]


async def test_a_function_is_a_term(start: Start, module: str) -> None:
    scorer = await start(f"{module}:brevity, {module}:captures", scheme="delta+0.5*brevity+captures")
    answers = ["\\boxed{Nxg5}", "\\boxed{h3}", "\\boxed{Ke5}", "no box"]
    take, quiet, illegal, none = await _verdicts(scorer, *answers)
    assert take.components == {"delta": 0.0, "brevity": 0.5 / 12, "captures": 2.0}
    assert quiet.components["captures"] == -2.0
    assert take.reward == sum(take.components.values())
    # From -3 to 2.5 for legal moves: 0.2 and 0.5 of the range below the lowest.
    assert illegal.reward == pytest.approx(-3 - 0.2 * 5.5)
    assert none.reward == pytest.approx(-3 - 0.5 * 5.5)
    calls = __import__(module).CALLS
    assert calls == [(["\\boxed{Nxg5}", "\\boxed{h3}"], [FEN, FEN], ["f3g5", "h2h3"])]


async def test_the_version_is_the_declared_one_or_that_of_the_source(
    start: Start, module: str, tmp_path: Path
) -> None:
    scorer = await start(f"{module}:brevity,{module}:captures,short={module}:brevity")
    [brevity] = await _verdicts(scorer, "\\boxed{h3}", scheme="brevity")
    [captures] = await _verdicts(scorer, "\\boxed{h3}", scheme="captures")
    [renamed] = await _verdicts(scorer, "\\boxed{h3}", scheme="short")
    assert captures.reward_version.startswith("captures-7/parser-")
    assert brevity.reward_version.split("/")[1:] == renamed.reward_version.split("/")[1:]
    (tmp_path / "changed.py").write_text(MODULE + "# changed\n")
    [changed] = await _verdicts(await start("changed:brevity"), "\\boxed{h3}", scheme="brevity")
    assert changed.reward_version != brevity.reward_version


@pytest.mark.parametrize("name", ["broken", "stops", "exits", "short", "beyond", "nothing"])
async def test_what_is_no_reward_is_a_fault(start: Start, module: str, name: str) -> None:
    scorer = await start(f"{module}:{name}")
    items = [ScoreItem(FEN, f"\\boxed{{{move}}}", scheme=f"delta+{name}") for move in ("h3", "a3")]
    items += [ScoreItem(FEN, "\\boxed{h3}"), ScoreItem(FEN, "no box", scheme=name)]
    first, second, plain, none = await scorer.score_batch(items)
    assert isinstance(first, PeerFault)
    assert name in str(first)
    assert isinstance(second, PeerFault)
    assert isinstance(plain, Verdict)
    assert isinstance(none, Verdict)  # the function was not needed for it


@pytest.mark.parametrize(
    ("schemes", "quoted"),
    [
        ("no_such_module:reward", "No module named 'no_such_module'"),
        ("json:reward", "has no attribute 'reward'"),
        ("delta=json:loads", "'delta' is taken"),
        ("json:loads,json:loads", "'loads' is taken"),
        ("json:JSONDecoder", "no scheme can name 'JSONDecoder'"),
        ("a b", "'a b'"),
        ("unheard_of", "no entry point 'unheard_of'"),
        ("http://localhost:1", "has no name"),
        ("far=http://localhost:1", "does not answer"),
    ],
)
async def test_a_service_does_not_start_without_them(start: Start, schemes: str, quoted: str) -> None:
    with pytest.raises(SetupError, match="--schemes") as refused:
        await start(schemes)
    assert quoted in str(refused.value)


async def test_the_default_scheme_must_be_among_them(start: Start, module: str) -> None:
    with pytest.raises(SetupError, match="levity"):
        await start(f"{module}:brevity", scheme="levity")
    scorer = await start(f"{module}:brevity")
    with pytest.raises(InvalidInput, match=r"choose from delta.*, brevity"):
        await scorer.score(ScoreItem(FEN, "\\boxed{h3}", scheme="levity"))


async def test_an_entry_point_names_a_function(
    start: Start, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = EntryPoint("brevity", f"{module}:brevity", custom_schemes.GROUP)
    monkeypatch.setattr(custom_schemes, "entry_points", lambda *, group, name: [declared])
    [verdict] = await _verdicts(await start("brevity"), "\\boxed{h3}", scheme="brevity")
    assert verdict.reward == pytest.approx(1 / 10)


class Server(BaseHTTPRequestHandler):
    """A user's server: the reward is the length of a thousand characters."""

    version = "a"

    def do_GET(self) -> None:
        self._answer({"version": self.version, "low": 0, "high": 1})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rewards = [len(text) / 1000 for text in asked["completions"]]
        self._answer({"version": self.version, "rewards": rewards})

    def _answer(self, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


async def test_a_server_gives_rewards_until_its_version_changes(
    start: Start, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = []
    monkeypatch.setattr(
        custom_schemes, "HttpPool", lambda *a, **k: pools.append(HttpPool(*a, **k)) or pools[-1]
    )
    scorer = await start(f"long=http://127.0.0.1:{server.server_port}", scheme="long")
    [verdict] = await _verdicts(scorer, "\\boxed{h3}")
    assert verdict.reward == 10 / 1000
    assert verdict.reward_version.startswith("long-a/")
    assert await scorer.unavailable_reason() is None
    monkeypatch.setattr(Server, "version", "b")
    with pytest.raises(PeerFault, match="version 'b', but it was 'a'"):
        await scorer.score(ScoreItem(FEN, "\\boxed{h3}"))
    assert "'version': 'b'" in (await scorer.unavailable_reason() or "")
    clients = [client for pool in pools for client in pool._clients]
    assert clients and not any(client.is_closed for client in clients)
    server.shutdown()
    server.server_close()
    with pytest.raises(PeerFault, match="scheme 'long'"):
        await scorer.score(ScoreItem(FEN, "\\boxed{h3}"))
    assert "scheme 'long'" in (await scorer.unavailable_reason() or "")
    await scorer.close()
    assert all(client.is_closed for client in clients)
