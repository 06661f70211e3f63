"""The viewer's API: who may do what, what it refuses, and what no answer of a model can do."""

import asyncio
import hashlib
import json
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import chess
import httpx
import pytest
from starlette.testclient import TestClient

from rookery.access import TOKEN_VARIABLE
from rookery.config.viewer import ViewerSettings
from rookery.errors import InvalidInput
from rookery.folder_lock import locked
from services.viewer import play
from services.viewer.app import STATIC, create_app
from services.viewer.routes import READERS
from tests.builders import changed
from tests.conftest import ROOT
from tests.viewed_runs import HOSTILE, groups, hostile_group, write_run

WEB = ROOT / "services" / "viewer" / "web"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder, "one", seed=0, more=(hostile_group("one"),))
    return folder


def client_of(runs: Path, folder: Path) -> TestClient:
    app = create_app(ViewerSettings(runs_dir=str(runs)), folder=folder)
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def client(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(runs, tmp_path_factory.mktemp("index")) as client:
        yield client


def test_every_answer_forbids_foreign_scripts(client: TestClient) -> None:
    for path in ("/", "/runs/one", "/static/app.js", "/api/runs", "/api/runs/nothing", "/healthz"):
        policy = client.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
    assert "innerHTML" not in "".join(path.read_text() for path in (WEB / "src").glob("*.ts")).replace(
        "there is no innerHTML", ""
    )


def test_it_changes_nothing_without_the_token(
    runs: Path, tmp_path: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/api/runs/one/ask", "/api/runs/one/serve", "/api/runs/one/dead/1-0/replay"):
        refused = client.post(path, json={"player": "engine"})
        assert (refused.status_code, "read-only" in refused.json()["title"]) == (403, True)
    monkeypatch.setenv(TOKEN_VARIABLE, "the-right-token-of-all")
    with client_of(runs, tmp_path) as guarded:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "the-right-token-of-all"}):
            assert (
                guarded.post("/api/runs/one/ask", json={"player": "engine"}, headers=header).status_code
                == 401
            )
        allowed = guarded.post(
            "/api/runs/one/ask",
            json={"player": "engine"},
            headers={"Authorization": "Bearer the-right-token-of-all"},
        )
        assert (allowed.status_code, "no reward service" in allowed.json()["detail"]) == (503, True)


def test_on_loopback_it_answers_to_loopback_names_alone(client: TestClient) -> None:
    for host, status in (("localhost:8010", 200), ("127.0.0.1:8010", 200), ("evil.example", 400)):
        assert client.get("/api/runs", headers={"Host": host}).status_code == status


def test_the_history_of_a_position_names_the_runs_searched(client: TestClient) -> None:
    fen = client.get("/api/runs/one/groups/hostile").json()["prompt"]["fen"]
    found = client.get("/api/runs/one/history", params={"position": "hostile:1:1", "fen": fen}).json()
    assert (found["runs"], [group["id"] for group in found["groups"]]) == (["one"], ["hostile"])


def test_the_history_of_a_position_leaves_out_a_run_that_was_renamed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "one", seed=0, more=(hostile_group("one"),))
    with client_of(tmp_path / "runs", tmp_path) as client:
        fen = client.get("/api/runs/one/groups/hostile").json()["prompt"]["fen"]
        (tmp_path / "runs" / "one").rename(tmp_path / "runs" / "two")
        assert client.get("/api/runs/two/groups/hostile").status_code == 200
        ask = {"position": "hostile:1:1", "fen": fen}
        found = client.get("/api/runs/two/history", params=ask).json()
        assert (found["runs"], [group["run"] for group in found["groups"]]) == (["two"], ["two"])


def test_a_copy_of_a_run_is_known_as_one_and_listed_once(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "one", seed=0, more=(hostile_group("one"),))
    start = {"time": 0.0, "command": "rookery up --run one", "commit": "abc", "version": "1"}
    manifest = {"id": "0123", "starts": [start]}
    (tmp_path / "runs" / "one" / "run.json").write_text(json.dumps(manifest))
    shutil.copytree(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    with client_of(tmp_path / "runs", tmp_path) as client:
        assert {run["name"]: run["id"] for run in client.get("/api/runs").json()} == {
            "one": "0123",
            "two": "0123",
        }
        assert client.get("/api/runs/two").json()["manifest"]["last_start"] == start
        fen = client.get("/api/runs/one/groups/hostile").json()["prompt"]["fen"]
        assert client.get("/api/runs/two/groups/hostile").status_code == 200
        ask = {"position": "hostile:1:1", "fen": fen}
        found = client.get("/api/runs/two/history", params=ask).json()
    assert (found["runs"], len(found["groups"])) == (["one", "two"], 1)


def test_the_own_redis_of_a_run_is_not_that_of_its_copy(tmp_path: Path) -> None:
    endpoints = {"run": "one", "redis_url": f"unix://{tmp_path / 'redis.sock'}"}
    for name in ("one", "two"):
        write_run(tmp_path / "runs", name, seed=0)
        (tmp_path / "runs" / name / "endpoints.json").write_text(json.dumps(endpoints))
    with client_of(tmp_path / "runs", tmp_path) as client, locked(tmp_path / "runs" / "one"):
        details = {name: client.get(f"/api/runs/{name}/dead").json()["detail"] for name in ("one", "two")}
    assert "redis.sock" in details["one"]
    assert "the Redis of run 'two' is not known" in details["two"]


@pytest.mark.parametrize("sections", [[], {"positions": []}, None])
def test_a_report_of_another_kind_is_no_evaluation(sections: object, runs: Path, client: TestClient) -> None:
    report = runs / "one" / "report.json"
    report.write_text(json.dumps({"sections": sections}))
    try:
        assert client.get("/api/runs/one").json()["evaluation"] == {}
    finally:
        report.unlink()


def test_no_password_leaves_it(client: TestClient) -> None:
    overview = client.get("/api/runs/one").text
    assert "secret" not in overview
    assert json.loads(overview)["settings"] == {"max_tokens": 32}


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/runs/nothing", 404, "no run 'nothing'"),
        ("/api/runs/..%2F..%2Fetc", 404, ""),
        ("/api/runs/one/groups?outcom=illegal", 422, "outcom"),
        ("/api/runs/one/groups?sort=beauty", 422, "beauty"),
        ("/api/runs/one/groups?sort=component", 422, "component=NAME"),
        ("/api/runs/one/groups?reward_min=high", 422, "high"),
        ("/api/runs/one/rescore?scheme=nonsense", 422, "nonsense"),
        (f"/api/runs/one/groups?page={10**30}", 422, "page"),
        (f"/api/runs/one/groups?turn_min={10**50}", 422, "turn_min"),
        (f"/api/runs/one/compare/one?page={10**20}", 422, "page"),
        (f"/api/runs/{'a' * 300}", 404, "no run 'aaa"),
        ("/api/nothing", 404, ""),
    ],
)
def test_a_mistake_is_quoted(client: TestClient, path: str, status: int, said: str) -> None:
    response = client.get(path)
    assert response.status_code == status
    assert said in response.json()["detail"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_figures_that_are_no_numbers_are_not_known(tmp_path: Path, value: float) -> None:
    whole = groups("one", seed=0, count=1)[0]
    verdict = replace(
        whole.traces[0].verdict, reward=value, regret=value, win_before=value, win_after=value,
        components={"delta": value},
    )  # fmt: skip
    completion = replace(
        whole.traces[0].completion, logprobs=(value,) * len(whole.traces[0].completion.logprobs)
    )
    trace = changed(whole.traces[0], verdict=verdict, completion=completion)
    bad = replace(whole, id="bad", traces=(trace, *whole.traces[1:]), generation_s=value)
    every = replace(bad, id="every", traces=(trace,) * 4)
    made = write_run(tmp_path, "one", seed=0, more=(bad, every))
    rewards = [
        t.verdict.reward for group in (*made[:-2], replace(bad, traces=bad.traces[1:])) for t in group.traces
    ]
    with client_of(tmp_path, tmp_path) as client:
        history = f"history?position={bad.position.id}&fen={bad.prompt.fen}"
        lists = [
            "groups",
            "groups?sort=spread",
            "groups/bad",
            "groups/every",
            "rescore",
            "collapse",
            "curves",
        ]
        for path in (*lists, "compare/one", history):
            assert client.get(f"/api/runs/one/{path}").status_code == 200, path
        summary = client.get("/api/runs/one/summary").json()
        assert summary["answers"] == len(rewards) + 5
        assert sum(bar["legal"] + bar["other"] for bar in summary["bins"]) == len(rewards)
        assert summary["reward"] == pytest.approx(sum(rewards) / len(rewards))
        listed = {group["id"]: group for group in client.get("/api/runs/one/groups").json()["groups"]}
    assert listed["bad"]["reward_mean"] == pytest.approx(sum(t.verdict.reward for t in bad.traces[1:]) / 3)
    assert (listed["every"]["reward_mean"], listed["every"]["reward_std"]) == (None, 0.0)
    assert [answer["advantage"] for answer in listed["bad"]["answers"]] == [None] * 4


def test_hostile_texts_come_whole_and_as_json(client: TestClient) -> None:
    response = client.get("/api/runs/one/groups/hostile")
    assert response.headers["content-type"] == "application/json"
    texts = [trace["completion"]["text"] for trace in response.json()["traces"]]
    assert texts == [f"<think>{text}</think>" for text in HOSTILE.values()]
    claims = {
        claim["true"]
        for trace in response.json()["traces"]
        for s in trace["sentences"]
        for claim in s["claims"]
    }
    assert claims == {True, False}


def test_a_position_of_ones_own(client: TestClient) -> None:
    def ask(**line: object) -> dict[str, object]:
        return dict(client.post("/api/play/position", json=line).json())

    assert ask(moves=["e4", "e7e5", "Nf3"])["moves"] == ["e2e4", "e7e5", "g1f3"]
    assert ask(pgn="1. f3 e5 2. g4 Qh4#")["over"] == "0-1 by checkmate"
    shuffle = ["Nf3", "Nf6", "Ng1", "Ng8"] * 2
    assert ask(moves=shuffle[:-1])["over"] is None, "as in matches, draws are not claimed in advance"
    assert ask(moves=shuffle)["over"] == "1/2-1/2 by threefold repetition"
    assert ask(pgn='[FEN "8/8/8/8/8/4k3/4p3/4K3 b - - 0 1"]\n\n*')["turn"] == "black"
    for line, said in (
        ({"fen": "nonsense"}, "not a FEN: 'nonsense'"),
        ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "impossible position"),
        ({"pgn": "1. e5 e5"}, "not a PGN"),
        ({"pgn": "not a game"}, "not a PGN: bad_move: no move: 'not'"),
        ({"pgn": "1. e4 e5 2. Sf3"}, "bad_move: no move: 'Sf3'"),
        ({"pgn": "1. e4 (1. d4 e5"}, "open_variation"),
        ({"pgn": "1. e4 *\n\n1. d4 *"}, "a PGN of one game"),
        ({"pgn": "{e4}"}, "no move and no FEN"),
        ({"pgn": '[Variant "Crazyhouse"]\n\n1. e4 *'}, "variant 'Crazyhouse'"),
        ({"pgn": '[FEN "8/8/8/8/8/8/4P3/4K3 w - - 0 1"]\n\n*'}, "no black king"),
        ({"pgn": "1. Nf3 Nf6 2. Ng1 Ng8 " * 151}, "too_long: more than 600 half-moves"),
        ({"moves": ["e4", "--"]}, "'--' is not a legal move"),
        ({"moves": ["0000"]}, "'0000' is not a legal move"),
        ({"moves": ["e2e5"]}, "'e2e5' is not a legal move"),
    ):
        assert said in str(ask(**line)["detail"])


async def test_nobody_is_asked_about_a_game_that_is_over() -> None:
    drawn = play.MoveQuestion(player=play.ENGINE, moves=["Nf3", "Nf6", "Ng1", "Ng8"] * 2)
    with pytest.raises(InvalidInput, match=r"^the game is over, 1/2-1/2 by threefold repetition: 'rnbqkbnr"):
        await play.RunServices("", "").answer(drawn, drawn.board())


def test_side_lines_cost_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    parse = chess.Board.parse_san
    monkeypatch.setattr(chess.Board, "parse_san", lambda board, san: read.append(san) or parse(board, san))
    pgn = "1. e4 e5 2. Nf3 " + "(2. f4 exf4 (2... d5) 3. Nf3) " * 500 + "Nc6 *"
    assert client.post("/api/play/position", json={"pgn": pgn}).json()["sans"] == ["e4", "e5", "Nf3", "Nc6"]
    assert read == ["e4", "e5", "Nf3", "Nc6"]


async def test_few_positions_are_read_at_a_time(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or their threads would keep the CPU from all other requests, and the process from its end."""
    reading: list[int] = [0]

    def read(line: object) -> dict[str, int]:
        reading.append(reading[-1] + 1)
        time.sleep(0.01)
        reading.append(reading[-1] - 1)
        return {}

    monkeypatch.setattr(play, "position_json", read)
    app = create_app(ViewerSettings(runs_dir=str(runs)), folder=tmp_path)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answers = await asyncio.gather(*(client.post("/api/play/position", json={}) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert max(reading) <= READERS


def test_the_bundle_is_of_its_sources() -> None:
    """`make viewer` builds it. Nothing here needs node."""
    digest = hashlib.sha256()
    for name in ("package-lock.json", *sorted(f"src/{path.name}" for path in (WEB / "src").iterdir())):
        digest.update(f"{name}\n".encode() + (WEB / name).read_bytes())
    assert (STATIC / "sources.sha256").read_text().strip() == digest.hexdigest(), "make viewer"


def _answer(player: str, question: str, outcome: str, **fields: object) -> str:
    record = {
        "key": f"{player}{question}",
        "player": player,
        "question": question,
        "outcome": outcome,
        **fields,
    }
    return json.dumps(record) + "\n"


def test_a_battery_is_filtered_and_two_players_stand_side_by_side(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "exam"
    folder.mkdir(parents=True)
    verdict = {"outcome": "legal", "move": {"uci": "e2e4", "san": "e4"}, "regret": 0.25}
    judged = {
        "variant": "shuffled",
        "fen": chess.STARTING_FEN,
        "answers": [{"text": "\\boxed{e4}", "tokens": 7, "verdict": verdict}],
    }
    outcomes = ("failed", "solved")
    lines = [
        _answer("a", "p1", "", section="brittleness", **judged),
        _answer("b", "p1", "illegal", section="brittleness", task="shuffled", text=HOSTILE["script"]),
        *(_answer("a", f"puzzle {n}", "solved", section="puzzles/mates", moves=["e2e4"]) for n in range(25)),
        *(_answer("b", f"puzzle {n}", outcomes[n % 2], section="puzzles/mates") for n in range(24)),
        _answer("a", "old", "solved"),
        "[1]\n", "{\n", _answer("a", "server", "", vllm=True),
        _answer("a", "p2", "legal", tokens=math.inf), '{"player": "a", "question": ' + "[" * 10**5 + "\n",
    ]  # fmt: skip
    (folder / "answers.jsonl").write_text("".join(lines))
    with client_of(tmp_path / "runs", tmp_path) as client:
        assert [run["name"] for run in client.get("/api/runs").json()] == ["exam"]
        assert client.get("/api/runs/exam").status_code == 200

        def ask(**query: object) -> dict:
            return client.get("/api/runs/exam/battery", params=query).json()

        everything = ask()
        assert (everything["players"], everything["questions"]) == (["a", "b"], 27)
        assert everything["counts"]["section"] == {"brittleness": 2, "puzzles/mates": 49, "other": 1}
        (row,) = ask(section="brittleness", player=["b", "a"])["rows"]
        assert (row["task"], row["question"], row["fen"]) == ("shuffled", "p1", chess.STARTING_FEN)
        assert [(a["player"], a["outcome"], a["move"], a["regret"], a["tokens"]) for a in row["answers"]] == [
            ("b", "illegal", "", None, 0), ("a", "legal", "e2e4", 0.25, 7)
        ]  # fmt: skip
        assert row["answers"][0]["text"] == HOSTILE["script"]
        both = ask(section="puzzles/mates", player=["b", "a"], outcome="failed")
        assert both["questions"] == 12
        assert both["counts"]["outcome"] == {"solved": 12, "failed": 12}
        assert len(both["rows"]) == 12 and all(len(row["answers"]) == 2 for row in both["rows"])
        assert ask(player="a", task="shuffled")["questions"] == 1
        assert [len(ask(page=page)["rows"]) for page in (0, 1, 2)] == [20, 7, 0]
        assert client.get("/api/runs/exam/battery", params={"player": ["a", "b", "c"]}).status_code == 422
        (folder / "answers.jsonl").unlink()
        assert ask()["players"] == []
