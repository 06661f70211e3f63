"""Parts that are runs of `rookery up`, as users start them."""

import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from bench.gpu.suite import Figures, GpuSettings
from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from launcher.capacity import CapacitySettings, predict
from launcher.runs import ENDPOINTS_FILE
from rookery.errors import RookeryError, SetupError
from rookery.plots.steps import METRICS_FILE, Step, read_metrics
from rookery.processes.child import Child, ServiceCommand, Watchdog, last_lines
from rookery.streams import RunStreams

ROOK_SMALL = "models/rook-small-sft"
SMALL = ("--batch-groups", "4", "--group-size", "4", "--nodes", "100")
PRESET_ON_CPU = ("--batch-groups", "8", "--nodes", "100")
SMOKE_STEPS, MISMATCH_STEPS, ONE_GPU_STEPS, STEPS_AFTER_KILL = 2, 4, 5, 2
WARM_UP_STEPS = 2
"""Steps of a preset whose times do not count: kernels are compiled, and the first groups are waited for."""
STOP_S = 60.0
LOOK_S = 0.5
KILLED = ("feed", "archive", "reward", "rollouts", "trainer", "redis", "inference")
"""The processes of a run but the viewer, which may be missing."""
V2 = "VLLM_USE_V2_MODEL_RUNNER"


@dataclass
class Up:
    """A `rookery up` that runs. `folder` is its run's."""

    child: Child
    log: Path
    folder: Path
    began: float = field(default_factory=time.monotonic)
    _shown: int = 0

    @property
    def rows(self) -> list[Step]:
        """The steps that the trainer has reported."""
        path = self.folder / METRICS_FILE
        return read_metrics(path) if path.exists() else []

    def wait(self, condition: Callable[[], object], *, tick: Callable[[], None] = lambda: None) -> None:
        """Waits until a condition holds, and prints each step. Raises `RookeryError` if the run fails first;
        the message has its last lines."""
        while True:
            status, done = self.child.poll(), condition()
            self._show()
            if done:
                return
            if status:
                lines = "\n".join(last_lines(self.log, 12))
                raise RookeryError(f"rookery up ended with status {status}:\n{lines}")
            if status == 0:
                raise RookeryError(f"rookery up ended before it was done, after {self._shown} steps")
            tick()
            time.sleep(LOOK_S)

    def _show(self) -> None:
        for row in (rows := self.rows)[self._shown :]:
            say(
                f"step {row['step']:.0f} after {time.monotonic() - self.began:.0f} s: "
                f"{row['tokens_per_s']:,.0f} tokens/s trained, {row['generated_tokens_per_s']:,.0f} "
                f"generated, mismatch {row.get('mismatch_mean', 0.0):.1e}"
            )
        self._shown = len(rows)

    def finish(self, *, tick: Callable[[], None] = lambda: None) -> list[Step]:
        """Waits until the run has done its --steps and ended. Returns its steps."""
        self.wait(lambda: self.child.poll() == 0, tick=tick)
        return self.rows

    def services(self) -> dict[str, psutil.Process]:
        """The processes of the services, by name: each writes into a log of its name."""
        services = {}
        logs = self.folder.resolve() / "logs"
        for child in psutil.Process(self.child.pid).children():
            with suppress(OSError):  # it has ended
                log = Path(f"/proc/{child.pid}/fd/2").readlink()
                if log.parent == logs:
                    services[log.stem] = child
        return services


def say(text: str) -> None:
    """Progress."""
    print(text, flush=True)


@contextmanager
def up(
    suite: GpuSettings,
    folder: Path,
    name: str,
    *flags: str,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Up]:
    """Starts a run in `folder`, on the devices of the suite unless the flags name others. It ends with the
    block, or with this process."""
    argv = [sys.executable, "-m", "launcher", "up", "--no-view", "--runs-dir", str(folder), "--run", name]
    argv += ["--inference-device", suite.serving, "--trainer-device", suite.training, *flags]
    log = folder / f"{name}.log"
    command = ServiceCommand("rookery up", tuple(argv), log, env=environment)
    with closing(Watchdog(grace_s=STOP_S)) as watchdog:
        child = Child(command, watchdog)
        try:
            yield Up(child, log, folder / name)
        finally:
            child.terminate()
            deadline = time.monotonic() + STOP_S
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            child.kill()


def smoke(suite: GpuSettings) -> Figures:
    """Each model trains for two steps, which takes every service and each of their ways to another."""
    folder = suite.folder("smoke")
    for number, model in enumerate((ROOK_SMALL, *suite.model)):
        say(f"{model}:")
        flags = ("--model", model, "--steps", str(SMOKE_STEPS), *SMALL)
        with up(suite, folder, f"smoke-{number}", *flags) as running:
            running.wait(lambda: running.rows)
            first_step_s = time.monotonic() - running.began
            rows = running.finish()
        keys = ("legal_rate", "completion_length", "mismatch_mean")
        yield model, {"first_step_s": first_step_s, **{key: mean(rows, key) for key in keys}}


def mismatch(suite: GpuSettings, *, runner: str) -> Figures:
    """Waits for the trainer before each batch, so that all groups are of the version that trains on them."""
    part = f"mismatch-{runner.lower()}"
    if suite.on_cpu and runner == "V2":
        yield "skipped", "vLLM has Model Runner V2 on GPUs alone"
        return
    flags = (*preset_flags(suite, *SMALL), "--staleness", "0", "--steps", str(MISMATCH_STEPS))
    # On a CPU vLLM takes V1 by itself.
    environment = {} if suite.on_cpu else {V2: "1" if runner == "V2" else "0"}
    with up(suite, suite.folder(part), "age-0", *flags, environment=environment) as running:
        rows = [row for row in running.finish() if row.get("mismatch_age") == 0]
    if not rows:
        raise RookeryError("the trainer compared no group of age 0")
    yield "groups", len(rows)
    yield "mismatch_mean", mean(rows, "mismatch_mean")
    yield "mismatch_max", max(row["mismatch_max"] for row in rows)


def preset(suite: GpuSettings) -> Figures:
    """The preset as it is, for some steps. On a CPU with smaller batches."""
    flags = (*preset_flags(suite), "--steps", str(suite.steps))
    memory = Memory()
    with up(suite, suite.folder("preset"), "preset", *flags) as running:
        rows = running.finish(tick=lambda: memory.look(running))
    yield "model", str(suite.model_dir)
    yield from run_figures(rows).items()
    yield "memory_gib", memory.peaks_gib


def one_gpu(suite: GpuSettings) -> Figures:
    """The preset on one GPU, which lends itself to the trainer for each step."""
    device = suite.serving
    flags = (*preset_flags(suite), "--steps", str(ONE_GPU_STEPS))
    if device == "auto":
        device = "0"
    memory = Memory()
    devices = ("--inference-device", device, "--trainer-device", device)
    with up(suite, suite.folder("one-gpu"), "one-gpu", *flags, *devices) as running:
        rows = running.finish(tick=lambda: memory.look(running))
    if suite.on_cpu:
        yield "turns", "none: vLLM cannot sleep on a CPU"
    else:
        settings = read_settings(running.folder, "inference")
        yield "gpu_memory", settings.get("gpu_memory")
        yield "sleep_s", mean(rows, "sleep_s")
    yield from run_figures(rows).items()
    yield "memory_gib", memory.peaks_gib


def kills(suite: GpuSettings) -> Figures:
    """Each process and its children end as by SIGKILL, one after another; the run must go on by itself, and
    its accounts must hold."""
    flags = ("--model", ROOK_SMALL, *SMALL, "--set", "archive.file_age_s=2", "--set", "archive.keep=100000")
    with up(suite, suite.folder("kills"), "kills", *flags) as running:
        running.wait(lambda: len(running.rows) >= STEPS_AFTER_KILL)
        for name in KILLED:
            yield f"{name} killed, goes on after s", _kill(running, name)
        endpoints = json.loads((running.folder / ENDPOINTS_FILE).read_text())
        with closing(RunStreams(endpoints["redis_url"], endpoints["run"])) as streams:
            overview = streams.overview()
    lost = abs(overview.astray) + abs(overview.archive_astray) + overview.counts.archive.get("missed", 0)
    doubled = _doubled(running.folder)
    yield from {"groups": overview.counts.generated, "lost": lost, "doubled": doubled}.items()
    if lost or doubled:
        raise RookeryError(f"{lost} groups lost, {doubled} doubled")


def _kill(running: Up, name: str) -> float:
    """Returns the seconds until the service is back and the trainer has made further steps."""
    running.wait(lambda: name in running.services())
    service = running.services()[name]
    for process in (*service.children(recursive=True), service):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    began, done = time.monotonic(), len(running.rows)

    def recovered() -> bool:
        again = running.services().get(name)
        return again is not None and again.pid != service.pid and len(running.rows) >= done + STEPS_AFTER_KILL

    running.wait(recovered)
    return time.monotonic() - began


def _doubled(folder: Path) -> int:
    """How many groups are in the newest version's ledger, or in the archive, more than once."""
    from services.trainer.versions import commits  # imports torch

    *_, newest = commits.folders(folder / "adapters").values()
    ledger = json.loads((newest / "state.json").read_bytes())["ledger"]
    archived = TraceArchive(open_folder(str(folder / "archive"))).groups(run=folder.name)
    effects = Counter(entry.partition(":")[0] for entry in ledger), Counter(group.id for group in archived)
    return sum(counts.total() - len(counts) for counts in effects)


def plan(suite: GpuSettings) -> Figures:
    """Takes the points of training from the preset's run and all others from their defaults."""
    run = suite.out / "preset" / "preset"
    if not (run / METRICS_FILE).is_file():
        raise SetupError(f"no run in {run}: the part `preset` makes it")
    rows, stored = read_metrics(run / METRICS_FILE), json.loads((run / "settings.json").read_text())
    used = {read_settings(run, name)["device"] for name in ("inference", "trainer")}
    settings = CapacitySettings(
        like=str(run),
        gpus=0 if suite.on_cpu else len(used),
        tokens=statistics.fmean(row["completion_length"] for row in rows),
        prompt_tokens=statistics.fmean(row["prompt_length"] for row in rows),
        cores=os.cpu_count() or 1,
        **{key: stored[key] for key in ("nodes", "group_size", "batch_groups", "staleness")},
    )
    predicted, measured = predict(settings), run_figures(rows)
    yield "points", dict(settings.points())
    yield "predicted", predicted
    training_s = sum(measured[key] for key in ("train_s", "commit_s", "settle_s", "publish_s"))
    yield "measured", {"seconds a step": measured["step_s"], "training, seconds a batch": training_s}
    yield "predicted_to_measured", float(predicted["seconds a step"]) / measured["step_s"]


def preset_flags(suite: GpuSettings, *sizes: str) -> tuple[str, ...]:
    """The preset, with the model that was asked for. Its sizes are its own, but for tries on a CPU."""
    model = ("--model", suite.preset_model) if suite.preset_model else ()
    return ("--preset", suite.preset_name, *model, *(sizes or PRESET_ON_CPU * suite.on_cpu))


def read_settings(run: Path, service: str) -> dict[str, Any]:
    """The settings that a service of the run was given."""
    return dict(tomllib.loads((run / "settings" / f"{service}.toml").read_text())[service])


def mean(rows: list[Step], key: str) -> float | None:
    """Of the steps that have a figure."""
    values = [row[key] for row in rows if key in row]
    return statistics.fmean(values) if values else None


def run_figures(rows: list[Step]) -> dict[str, Any]:
    """Speeds, times and quality of a run's steps, without its first ones if it has more."""
    steady = rows[WARM_UP_STEPS:] or rows
    keys = "rollout_wait_s train_s commit_s settle_s publish_s legal_rate reward mismatch_mean age_mean mfu"
    peak = max((row["cuda_peak_mib"] for row in steady if "cuda_peak_mib" in row), default=None)
    step_s = statistics.median(row["step_s"] for row in steady)
    completions = statistics.fmean(row["completions"] * row["completion_length"] for row in steady)
    return {
        "steps": len(rows),
        "step_s": step_s,
        "generated_tokens_per_s": completions / step_s,
        "trained_tokens_per_s": mean(steady, "tokens_per_s"),
        **{key: mean(steady, key) for key in keys.split()},
        "trainer_peak_gib": peak / 1024 if peak else None,
    }


@dataclass
class Memory:
    """The peaks of a run's two sides: of each card that nvidia-smi tells, else of the resident sets."""

    peaks_gib: dict[str, float] = field(default_factory=dict)
    _next: float = 0.0

    def look(self, running: Up) -> None:
        """Looks at most every two seconds: nvidia-smi takes a tenth."""
        if time.monotonic() < self._next or running.child.poll() is not None:
            return
        self._next = time.monotonic() + 2.0
        by_pid, by_card = gpu_memory_gib()
        used_gib = dict(by_card)
        for name in ("inference", "trainer"):
            with suppress(psutil.Error, KeyError):
                service = running.services()[name]
                tree = [service, *service.children(recursive=True)]
                if by_card:
                    held = [by_pid[process.pid] for process in tree if process.pid in by_pid]
                    used_gib |= {name: sum(held)} if held else {}  # a container may not see these numbers
                else:
                    used_gib[name] = sum(process.memory_info().rss for process in tree) / (1 << 30)
        for name, gib in used_gib.items():
            self.peaks_gib[name] = max(gib, self.peaks_gib.get(name, 0.0))


def gpu_memory_gib() -> tuple[dict[int, float], dict[str, float]]:
    """What processes have of the GPUs, by pid, and what is used of each card; nothing without GPUs."""
    by_pid = {int(pid): int(mib) / 1024 for pid, mib in _smi("--query-compute-apps=pid,used_memory")}
    by_card = {f"card {index}": int(mib) / 1024 for index, mib in _smi("--query-gpu=index,memory.used")}
    return by_pid, by_card


def _smi(query: str) -> list[tuple[str, str]]:
    """`rookery.devices` asks each question once; the answer to these changes."""
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    pairs = [line.split(", ") for line in done.stdout.splitlines()]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and all(map(str.isdigit, pair))]
