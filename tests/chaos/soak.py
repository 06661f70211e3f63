"""The whole system, disturbed for long without an end of its processes: nothing may grow, nothing slow down.

ROWS.jsonl   a line for each sample and each fault, written at once: `tables` makes the report of any part
"""

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from tests.chaos.disturbed import Disturbed, NotRecoveredError
from tests.chaos.faults import fill_redis, network, pause_redis
from tests.chaos.proxy import FAULTS as NETWORK
from tests.chaos.whole import PAUSES, Whole

FAULTS: dict[str, Callable[[Disturbed, float], int]] = {
    **{f"network: {fault}": partial(network, fault) for fault in NETWORK},
    "redis full": fill_redis,
    "redis paused": pause_redis,
    **PAUSES,
}
ROWS = "rows.jsonl"
LASTS_S = 5.0
"""How long a fault lasts."""
EPISODE = "0.5*move + 0.5*game,opponent=stockfish,nodes=50,blunders=0.5,plies=24,colours=both"
SAMPLE_S = 10.0
STEP_PAUSE_S = 5.0
WARM_UP = 0.2
"""The first samples, as a share, are left out: caches fill."""


def soak(folder: Path, *, seed: int, minutes: float, fault_every_s: float = 60.0) -> None:
    """Makes a fault every `fault_every_s` for `minutes`, and adds what it sees to the rows in `folder`.

    A run that was interrupted goes on. The trainer pauses after each step.

    Raises:
        NotRecoveredError: a process ended, the run did not go on, or an account does not hold.
    """
    with (
        Whole(folder, seed=seed, step_pause_s=STEP_PAUSE_S, episode=EPISODE) as whole,
        (folder / ROWS).open("a") as file,
    ):

        def write(**row: Any) -> None:
            file.write(json.dumps({"s": round(time.monotonic() - began, 1), **row}) + "\n")
            file.flush()

        began = struck = time.monotonic()
        processes = whole.processes()
        write(begins=time.strftime("%Y-%m-%d %H:%M:%S"), seed=seed)
        while time.monotonic() - began < 60 * minutes:
            if time.monotonic() - struck >= fault_every_s:
                struck, name = time.monotonic(), whole.random.choice(list(FAULTS))
                write(fault=name, **_strike(whole, FAULTS[name]))
            time.sleep(SAMPLE_S)
            if (now := whole.processes()) != processes:
                raise NotRecoveredError(f"a process ended: {processes}, now {now}")
            write(sample=_sample(whole, processes))
        whole.stop()
        lost, doubled = whole.check(whole.steps)
        write(ends=True, lost=lost + whole.lost_positions(), doubled=doubled)


def _strike(whole: Whole, inject: Callable[[Disturbed, float], int]) -> dict[str, Any]:
    """Makes a fault, and waits for the end of the second step after it."""
    injections, steps, ended = inject(whole, LASTS_S), whole.steps, time.monotonic()
    whole.until(lambda: whole.steps >= steps + 2, "two more steps")
    lost, doubled = whole.check(steps)
    recovered_s = round(time.monotonic() - ended, 1)
    return {"injections": injections, "recovered_s": recovered_s, "lost": lost, "doubled": doubled}


def _sample(whole: Whole, processes: dict[str, psutil.Process]) -> dict[str, float]:
    figures: dict[str, float] = {"steps": whole.steps}
    for name, process in processes.items():
        memory, files, sockets, cpu_s = 0, 0, 0, 0.0
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                memory += each.memory_info().rss
                files += each.num_fds()
                sockets += len(each.net_connections("all"))
                cpu_s += sum(each.cpu_times()[:2])
        figures |= {f"{name}: memory, MiB": memory / 2**20, f"{name}: open files": files}
        figures |= {f"{name}: sockets": sockets, f"{name}: CPU, s a step": cpu_s}
    with whole.redis_client() as client:
        figures["redis: keys"] = client.dbsize()
        figures["redis: data, MiB"] = client.info("memory")["used_memory"] / 2**20
    figures["adapters on disk"] = len(list((whole.run_dir / "adapters").glob("policy-*")))
    return figures


def tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """How each quantity developed since the newest start, and what became of all faults."""
    newest = max(number for number, row in enumerate(rows) if "begins" in row)
    samples = [{"s": row["s"], **row["sample"]} for row in rows[newest:] if "sample" in row]
    return [_growth(samples[int(WARM_UP * len(samples)) :]), _faults(rows)]


def _growth(samples: list[dict[str, float]]) -> Table:
    """Means over the first and the last quarter, and the slope by least squares. CPU is per step."""
    table = Table("quantity", "first quarter", "last quarter", "slope an hour", box=None)
    quarter = max(2, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    for name in sorted(samples[-1].keys() - {"s"}) if len(samples) >= 2 else ():
        if name == "steps":
            rates = [60 * _rate(part, "steps", "s") for part in (first, last)]
            table.add_row("steps a minute", *(f"{rate:,.2f}" for rate in rates))
        elif "CPU" in name:
            table.add_row(name, *(f"{_rate(part, name, 'steps'):,.3f}" for part in (first, last)))
        else:
            means = [statistics.fmean(sample[name] for sample in part) for part in (first, last)]
            hours = [sample["s"] / 3600 for sample in samples]
            slope = statistics.linear_regression(hours, [sample[name] for sample in samples]).slope
            table.add_row(name, *(f"{value:,.2f}" for value in (*means, slope)))
    return table


def _faults(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("fault", "times", "injections", "recovered in, s", "longest", "lost", "doubled", box=None)
    for name in sorted({row["fault"] for row in rows if "fault" in row}):
        found = [row for row in rows if row.get("fault") == name]
        waits = [row["recovered_s"] for row in found]
        injections, lost, doubled = (
            sum(row[key] for row in found) for key in ("injections", "lost", "doubled")
        )
        said = (len(found), injections, f"{statistics.median(waits):.1f}", f"{max(waits):.1f}", lost, doubled)
        table.add_row(name, *map(str, said))
    for row in rows:
        if "ends" in row:
            end = f"at the end, after {row['s'] / 60:.0f} minutes"
            table.add_row(end, "", "", "", "", str(row["lost"]), str(row["doubled"]))
    return table


def _rate(samples: list[dict[str, float]], name: str, per: str) -> float:
    """The growth of a quantity over that of another one."""
    divisor = samples[-1][per] - samples[0][per]
    return (samples[-1][name] - samples[0][name]) / divisor if divisor else 0.0
