"""Our side: the services of a run as `rookery up` starts them, if asked with a reward that costs nothing."""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.loop.workload import Workload
from bench.usage import family_s
from launcher.observer import Observer
from launcher.plan import HOST, Plan, make_plan
from launcher.settings import UpSettings
from launcher.supervisor import Supervisor
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.processes.child import Watchdog
from rookery.processes.ports import Ports

PHASES = ("rollout_wait", "train", "commit", "settle", "publish")
"""Parts of the trainer's step, as metrics.jsonl names them; the rest is reading and reporting."""


@dataclass(frozen=True)
class Ours:
    """Seconds are means over the measured steps; `cpu_cores` is the processor time of each service.

    `at_bound` is the share of time in which no further group might start, and `trainer_idle` that in which
    the trainer waited for groups.
    """

    samples_per_s: float
    step_s: float
    tokens: float
    phases_s: Mapping[str, float]
    at_bound: float
    trainer_idle: float
    cpu_cores: Mapping[str, float]
    age: float
    completions: int


def run_ours(work: Workload, runs: Path, name: str, *, just_in_time: bool) -> Ours:
    """Trains `warmup_steps`, then measures `steps`."""
    with ExitStack() as exits:
        plan = _plan(work, runs, name, exits.enter_context(Ports(HOST)), just_in_time=just_in_time)
        supervisor, observer = exits.enter_context(_started(plan))
        before = _wait(supervisor, observer, steps=work.warmup_steps)
        after = _wait(supervisor, observer, steps=work.warmup_steps + work.steps)
    steps = read_metrics(runs / name / METRICS_FILE)[: work.warmup_steps + work.steps]
    rows = steps[work.warmup_steps :]
    wall_s = rows[-1]["time"] - steps[work.warmup_steps - 1]["time"]
    watched_s = after.at - before.at
    return Ours(
        samples_per_s=sum(row["completions"] for row in rows) / wall_s,
        step_s=wall_s / len(rows),
        tokens=statistics.fmean(row["completion_length"] for row in rows),
        phases_s={phase: statistics.fmean(row[f"{phase}_s"] for row in rows) for phase in PHASES},
        at_bound=(after.backpressure_s - before.backpressure_s) / watched_s,
        trainer_idle=sum(row["rollout_wait_s"] for row in rows) / wall_s,
        cpu_cores={n: (after.cpu_s[n] - before.cpu_s.get(n, 0.0)) / watched_s for n in after.cpu_s},
        age=statistics.fmean(row["age_mean"] for row in rows),
        completions=int(sum(row["completions"] for row in rows)),
    )


def _plan(work: Workload, runs: Path, name: str, ports: Ports, *, just_in_time: bool) -> Plan:
    settings = UpSettings(
        model=str(work.model),
        source=str(work.source),
        run=name,
        runs_dir=runs,
        group_size=work.group_size,
        batch_groups=work.batch_groups,
        staleness=work.staleness,
        max_tokens=work.tokens,
        style=work.style,
        seed=work.seed,
        nodes=work.nodes or 1,
        set=(
            f"trainer.lr={work.lr}",
            f"trainer.precision={work.precision}",
            f"trainer.lora_rank={work.lora_rank}",
            f"trainer.lora_alpha={work.lora_alpha}",
            f"trainer.lora_targets={','.join(work.lora_targets)}",
            # Every completion is cut at the limit here; none may be left out of the loss.
            "trainer.mask_truncated=false",
            f"rollouts.just_in_time={str(just_in_time).lower()}",
        ),
    )
    plan = make_plan(settings, ports)
    plan.write_settings()
    if work.nodes:
        return plan
    listening = plan.ports["reward"]
    flags = [f"--port={listening['port']}", f"--grpc-port={listening['grpc_port']}"]
    argv = (sys.executable, "-m", "bench.loop.reward", *flags)
    reward = replace(plan.commands["reward"], argv=argv)
    return replace(plan, commands={**plan.commands, "reward": reward})


@contextmanager
def _started(plan: Plan) -> Iterator[tuple[Supervisor, Observer]]:
    with ExitStack() as exits:
        watchdog = Watchdog()
        exits.callback(watchdog.close)
        supervisor = Supervisor(plan.stages, watchdog, finisher="trainer")
        exits.callback(lambda: supervisor.stop(hurry=lambda: False))
        observer = Observer(
            plan.probe_urls, redis_url=plan.redis_url, run=plan.run_dir.name, run_dir=plan.run_dir
        )
        observer.start()
        exits.callback(observer.close)
        yield supervisor, observer


@dataclass(frozen=True)
class _Moment:
    at: float
    backpressure_s: float
    cpu_s: Mapping[str, float]


def _wait(supervisor: Supervisor, observer: Observer, *, steps: int) -> _Moment:
    """The state of affairs once so many steps are done."""
    while not observer.snapshot.steps or observer.snapshot.steps[-1]["step"] < steps:
        supervisor.step(observer.snapshot.probes)
        time.sleep(0.2)
    snapshot = observer.snapshot
    return _Moment(
        at=time.monotonic(),
        backpressure_s=snapshot.idle_s.get("backpressure", 0.0),
        cpu_s={m.command.name: family_s(m.child.pid) for m in supervisor.members if m.child},
    )
