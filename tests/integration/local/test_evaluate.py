"""`rookery evaluate` and `battery` with players that need no model: it starts the reward service itself."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from launcher.runs import write_held_out
from rookery.command_line import main
from rookery.errors import SetupError
from tests.commands import call
from tests.conftest import ROOT

pytestmark = [pytest.mark.stockfish, pytest.mark.timeout(300)]


def test_held_out_positions_are_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "heldout.jsonl"
    file.write_text("those of before\n")
    with file.open() as reader:  # an evaluation that goes on
        with pytest.raises(SetupError, match=r"no held-out positions: .*'no-such.pgn'"):
            write_held_out(file, source="no-such.pgn", count=1, seed=0)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        assert file.read_text() == "those of before\n"
        write_held_out(file, source=str(ROOT / "samples" / "lichess.pgn.zst"), count=1, seed=0)
        assert reader.read() == "those of before\n"
    assert len(file.read_text().splitlines()) == 1


def test_every_section_of_engines_and_random_movers(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text('4k3/8/8/8/8/8/4P3/4K3 w - - bm e4; id "push";\n')
    argv = [
        sys.executable, "-m", "launcher", "battery",
        "random", "stockfish,nodes=50", "--data", "random=samples/mates_in_1.csv",
        "--count", "12", "--samples", "2", "--nodes", "100", "--puzzle-count", "8", "--suites", str(suite),
        "--pairs", "2", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(report["players"]) == ["random", "stockfish-nodes=50"]
    sections = report["sections"]
    assert set(sections) == {
        "positions", "brittleness", "puzzles/puzzles", "puzzles/mates_in_1", "suites/suite", "matches",
        "contamination",
    }  # fmt: skip
    seen = sections["contamination"]["seen"]
    assert (seen["mates_in_1.csv"]["random"]["mean"], seen["suite.epd"]["random"]["mean"]) == (1.0, 0.0)
    assert report["summary"][0].startswith("stockfish-nodes=50 against random: better in ")
    assert sections["positions"]["metrics"]["legal_rate"]["random"]["mean"] == 1.0
    mates = sections["puzzles/mates_in_1"]["metrics"]["solved"]
    assert mates["stockfish-nodes=50"]["mean"] > mates["random"]["mean"]
    assert "rating" in sections["puzzles/puzzles"]["metrics"]
    assert "rating" not in sections["puzzles/mates_in_1"]["metrics"]
    [pairing] = sections["matches"]["encounters"]["wins"].values()
    losses = sections["matches"]["players"]["losses"]
    assert pairing["mean"] == losses["stockfish-nodes=50"]["mean"]
    page = (tmp_path / "out" / "report.html").read_text()
    for title in ("Positions", "Puzzles: mates_in_1", "Test suite: suite", "Matches: after an illegal move"):
        assert re.search(f"<h2[^>]*>{title}", page), title


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "player 'nobody': no such kind of player"),
        (("random", "--sections", "matches"), "a match needs two players"),
        (("random", "--sections", "chess960"), "no section 'chess960'"),
        (("run:nowhere",), "player 'run:nowhere': no run 'nowhere'"),
    ],
)
def test_mistakes_are_said_in_a_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call(main, ["evaluate", *arguments, "--count", 2, "--out", tmp_path])
    assert done.returncode == 2
    told = done.stderr + capfd.readouterr().err  # of the arena, which is a process of its own
    assert said in told
    assert "Traceback" not in told


def test_a_dry_run_leaves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = call(main, ["evaluate", "random", "--count", 2, "--dry-run", "--out", tmp_path / "out"])
    assert (done.returncode, "random" in capfd.readouterr().out) == (0, True), done.stderr
    assert list(tmp_path.iterdir()) == []


class _Talker(BaseHTTPRequestHandler):
    """A chat endpoint that knows LLM Chess's dialogue: it asks for the board, then for the legal moves, and
    plays one of them. The model `lost` asks for the board until its context is full."""

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": "talker", "owned_by": "somebody"}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first, *_, last = [message["content"] for message in asked["messages"] * 2]
        turn = len(asked["messages"]) // 2
        if not first.startswith("You are a professional chess player"):
            text = "\\boxed{e4}"
        elif asked["model"] == "lost" and turn > 3:
            return self._send(400, {"error": {"code": "context_length_exceeded"}})
        else:
            actions = ["get_current_board", "get_legal_moves", f"make_move {last.partition(',')[0]}"]
            text = actions[0 if asked["model"] == "lost" else min(turn, 2)]
        message = {"role": "assistant", "content": text}
        choices = [
            {"index": i, "message": message, "finish_reason": "stop"} for i in range(asked.get("n", 1))
        ]
        return self._send(200, {"choices": choices, "usage": {"completion_tokens": 4}})

    def _send(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


def test_llm_chess_by_its_dialogue_and_by_prompts(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text('4k3/8/8/8/8/8/4P3/4K3 w - - bm e4; id "push";\n')
    with ThreadingHTTPServer(("127.0.0.1", 0), _Talker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        players = [f"{url}#talker,style=fen", f"{url}#lost,style=fen", f"{url}#voter,style=fen,vote=2"]
        argv = [sys.executable, "-m", "launcher", "battery", *players, "--sections", "suites",
                "--suites", str(suite), "--llm-chess", "2", "--out", str(tmp_path / "out")]  # fmt: skip
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    sections = {name: report["sections"][f"matches-{name}-random"] for name in ("talker", "lost", "voter")}
    counts = {name: section["llm_chess"] for name, section in sections.items()}
    assert counts["talker"]["wrong_actions_per_100moves"]["talker"]["mean"] == 0
    assert counts["talker"]["average_moves"]["talker"]["mean"] > 10
    assert counts["lost"]["llm_max_turns"]["lost"]["mean"] == 2
    assert counts["lost"]["average_moves"]["lost"]["mean"] == 2  # one of each side: the second has no move
    assert counts["voter"]["wrong_moves_per_100moves"]["voter"]["mean"] > 0  # e4 is no move of Black
    elo = sections["lost"]["encounters"]["elo"]["lost against random"]
    assert elo["mean"] is None and elo["ci95"][0] is None
    titles = [f"LLM Chess, {asked}" for asked in ("in dialogues", "by prompts")]
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(re.search(f"<h2[^>]*>{title}", page) for title in titles)
    assert "LLM Chess, in dialogues: lost against random: Elo below " in "\n".join(report["summary"])
