"""The `rookery` command as a process of its own."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import psutil
import pytest

from rookery.processes.child import last_lines
from tests.conftest import ROOT, require
from tests.waiting import until

INTERRUPTED = """
import os, signal, sys
WANTED = sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == WANTED:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
if WANTED == "rookery.command_line":
    sys.meta_path.insert(0, Interrupt())
from launcher.command import main
sys.meta_path.insert(0, Interrupt())
sys.exit(main())
"""


AFTER_A_WHILE = """
import signal, sys
seconds = float(sys.argv.pop(1))
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
from launcher.command import main
signal.setitimer(signal.ITIMER_REAL, seconds)
sys.exit(main())
"""


def test_players_without_a_server_pass_through() -> None:
    specs = ["random", "stockfish,nodes=10,skill=3", "http://h:1#m,style=fen"]
    command = [sys.executable, "-m", "launcher", "serve", "players", *specs]
    done = subprocess.run(command, input="", capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == specs


def test_a_full_disk_is_an_error_of_one_line() -> None:
    command = [sys.executable, "-m", "launcher", "data", "sample", "--count", "1"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: rookery data sample: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "absent"),
    [("check x", "commentary"), ("data stats x", "chess_datasets"), ("score x y", "services.reward")],
)
def test_a_part_that_an_image_leaves_out_is_named(words: str, absent: str) -> None:
    program = (
        "import sys; sys.modules[sys.argv[1]] = None; from rookery.command_line import main; "
        "sys.exit(main(sys.argv[2].split()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, absent, words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    name = words.partition(" x")[0]
    assert done.returncode == 2
    assert re.fullmatch(
        rf"error: rookery {name} needs {absent}[.\w]*, which is not installed .*\n", done.stderr
    )


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("rookery.command_line", "up"),
        ("rookery.errors", "status"),
        ("rookery.settings", "up"),
        ("pydantic_settings.sources", "up"),
        ("rich.console", "up"),
        ("launcher.session", "up"),
        ("redis", "up"),
        ("chess_datasets.commands.stats", "data stats OUT/games.pgn"),
        ("pyarrow", "data sample --count 1 --out OUT"),
        ("rookery.config.data", "serve data"),
        ("duckdb", "serve viewer --port 0"),
        ("services.reward.scorer", "serve reward --port 0 --grpc-port 0"),
        ("services.reward.command", "score FEN RESPONSE"),
        ("rookery.config.arena", "arena match random random"),
        ("numpy", "arena elo OUT/games.jsonl"),
        ("arena.uci.session", "uci"),
        ("commentary", "check text --fen FEN"),
    ],
)
def test_ctrl_c_in_the_middle_of_an_import_is_quiet(module: str, command: str, tmp_path: Path) -> None:
    argv = [word.replace("OUT", str(tmp_path)) for word in command.split()]
    argv += ["--runs-dir", str(tmp_path), "--model", "none"] if command == "up" else []
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    ends = -signal.SIGINT if module == "rookery.command_line" else 130
    assert (done.returncode, done.stdout, done.stderr) == (ends, "", "")


@pytest.mark.torch
@pytest.mark.parametrize(
    "command",
    [
        "sft --model models/rook-tiny --data DATA --out OUT",
        "dpo --model models/rook-tiny --data DATA --out OUT",
        "serve reward-model --model models/rook-tiny --port 0",
        "evaluate random --out OUT",
    ],
)
def test_ctrl_c_at_any_moment_of_the_start_is_quiet(command: str, tmp_path: Path) -> None:
    """Where it begins with the imports of torch and transformers, or starts other processes."""
    data, seconds = tmp_path / "data.jsonl", random.uniform(0.01, 5)
    user, good, bad = ([{"role": role, "content": "e4"}] for role in ("user", "assistant", "assistant"))
    row = json.dumps({"messages": user + good, "prompt": user, "chosen": good, "rejected": bad})
    data.write_text(f"{row}\n" * 4000)
    argv = command.replace("DATA", str(data)).replace("OUT", str(tmp_path / "out")).split()
    done = subprocess.run(
        [sys.executable, "-c", AFTER_A_WHILE, str(seconds), *argv],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    before_ctrl_c = "has no reward_model.json" in done.stderr  # a fast machine is through with it
    assert done.returncode == (2 if before_ctrl_c else 130), (seconds, done.stderr)
    assert not re.search("Traceback|Exception ignored", done.stdout + done.stderr), (seconds, done.stderr)


@pytest.mark.parametrize(
    "work",
    [
        "class A:\n    def __del__(self):\n        raise KeyboardInterrupt\nA()",
        "class A:\n    def __del__(self):\n        raise SystemExit(130)\nA()",
        "try:\n    import swallowed\nexcept BaseException:\n    pass",
    ],
    ids=["destructor", "exit in a destructor", "import"],
)
def test_ctrl_c_is_not_swallowed(work: str, tmp_path: Path) -> None:
    (tmp_path / "swallowed.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    code = f"""
import sys
from rookery import command_line
WORK = {work!r}
command_line._execute = lambda command, rest: exec(WORK) or print("goes on")
sys.argv[1:] = ["plan"]
sys.path.append({str(tmp_path)!r})
command_line.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


LOADING = """
import sys
from pathlib import Path
from launcher import serve_players
from tests.integration.local.children import WITH_WORKER, script
url = "http://127.0.0.1:9/readyz"
serve_players._command = lambda *_, log, **__: script("server", WITH_WORKER, log.parent, probe_url=url)
flags = ["model:models/rook-tiny", "--logs", sys.argv[1]]
sys.exit(serve_players.serve_until_eof(serve_players.PlayersSettings.parse(flags, prog="players")))
"""


def test_players_end_with_their_input_while_the_model_loads(tmp_path: Path) -> None:
    """As they do when `rookery uci`, which holds the input, is killed."""
    command = [sys.executable, "-c", LOADING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as players:
        worker = int(until(lambda: last_lines(tmp_path / "server.log", 1), of=players)[0])
        assert players.stdin
        players.stdin.close()
        assert until(lambda: players.poll() is not None)
        assert players.returncode == 0
    until(lambda: not psutil.pid_exists(worker))


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("demo --dry-run", f'model = "{ROOT}/models/rook-small-sft"'),
        ("up --dry-run --model models/rook-small", 'style = "mover-twice" '),
        ("data sample --count 1", '"id": "8999067f:'),
        ("data stats samples/lichess.pgn.zst", "games"),
        ("uci --player model:models/rook-tiny", "id name Rookery"),
    ],
)
def test_models_and_samples_are_found_in_any_folder(command: str, output: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "launcher", *command.split()],
        input="uci\nquit\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert output in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.uv
def test_a_wheel_has_models_and_samples(tmp_path: Path) -> None:
    """Beside the packages of this environment, so that the wheel alone is installed."""
    uv = require("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist", ROOT], check=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel], check=True)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command, output in (
        ("demo --dry-run", f'model = "{tmp_path}/env/share/rookery/models/rook-small-sft"'),
        ("data sample --count 1", '"id": "8999067f:'),
    ):
        rookery = [tmp_path / "env" / "bin" / "rookery", *command.split()]
        done = subprocess.run(
            rookery, capture_output=True, text=True, cwd=tmp_path / "dist", env=environment, check=True
        )
        assert output in done.stdout


def test_up_shows_what_the_services_resolve(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "launcher",
        "up",
        "--preset",
        "tiny-cpu",
        "--dry-run",
        "--batch-groups",
        "8",
    ]
    done = subprocess.run(
        [*command, "--set", "trainer.lr=5e-4", "--runs-dir", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    resolved = tomllib.loads(done.stdout)
    assert list(tmp_path.iterdir()) == []
    services = {"feed", "archive", "reward", "trainer", "inference", "rollouts"}
    assert {"up", *services} <= set(resolved)
    assert resolved["trainer"]["batch_groups"] == resolved["rollouts"]["batch_groups"] == 8
    assert (resolved["trainer"]["lr"], resolved["trainer"]["row_tokens"]) == (5e-4, 1024)
    assert any(
        line.startswith("row_tokens") and "preset tiny-cpu" in line for line in done.stdout.splitlines()
    )
