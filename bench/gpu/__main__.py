"""`make gpu`, or `python -m bench.gpu`: the suite, each part in a process of its own. See docs/gpu.md."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.gpu.parts import SETTINGS
from bench.gpu.report import FAILED, PAGE, PASSED, ROOT, Report
from bench.gpu.suite import PARTS, GpuSettings
from launcher.runs import write_json
from rookery import devices
from rookery.command_line import INTERRUPTED
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import last_lines
from rookery.settings import fail

GRACE_S = 90.0
"""How long a part may take to end what it has started, once it is told to stop."""
LOG_LINES = 30
"""Of the log of a part that failed."""


def main(argv: list[str]) -> int:
    """Runs what is left of the suite. Returns 1 if a part failed."""
    requested = GpuSettings.parse(argv, prog="python -m bench.gpu")
    if not (requested.on_cpu or devices.usable_gpus()):
        raise SetupError(
            "there is no GPU (nvidia-smi -L). --device cpu tries the suite on this machine's CPU"
        )
    suite = requested.model_copy(update={"out": requested.out.absolute()})
    report, console = Report.open(suite), Console(soft_wrap=True, highlight=False)
    suite.out.mkdir(parents=True, exist_ok=True)
    write_json(suite.out / SETTINGS, suite.model_dump(mode="json"))
    chosen = suite.selected()
    for number, part in enumerate(chosen, start=1):
        title = f"{number} of {len(chosen)}, {part}"
        passed = report.parts.get(part, {}).get("status") == PASSED
        if passed and part not in suite.again.split(","):
            console.print(f"{title}: has passed ({report.parts[part]['at']})")
            continue
        console.print(f"{title}: {PARTS[part]}", style="bold")
        run(part, suite, report, console)
        console.print(f"{title}: {report.parts[part]['status']} after {report.parts[part]['seconds']} s")
    report.write()
    failed = [part for part in chosen if report.parts[part]["status"] == FAILED]
    console.print(f"{suite.out / PAGE}: {len(chosen) - len(failed)} of {len(chosen)} parts passed")
    if failed:
        console.print(f"failed: {', '.join(failed)}. The same command runs them again")
    return int(bool(failed))


def run(part: str, suite: GpuSettings, report: Report, console: Console) -> None:
    """Runs a part with its limit of time, shows what it says, and adds what became of it to the report."""
    figures, log = suite.out / f"{part}.json", suite.out / f"{part}.log"
    figures.unlink(missing_ok=True)
    began = time.monotonic()
    status = _supervise(part, suite, log, console)
    seconds = time.monotonic() - began
    if seconds >= suite.limit_s and status:
        error = f"stopped after {suite.limit_s:.0f} s (--limit-s)"
    else:
        error = " ".join(last_lines(log, 1)).removeprefix("error: ") if status else ""
        error = error or (f"ended with status {status}" if status else "")
    results: dict[str, Any] = json.loads(figures.read_text()) if figures.exists() else {}
    tail = "\n".join(last_lines(log, LOG_LINES))
    report.add(part, seconds=seconds, figures=results, error=error, log=tail)


def _supervise(part: str, suite: GpuSettings, log: Path, console: Console) -> int:
    """Runs the process of a part in a session of its own, of which nothing is left. Returns its status."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gpu.parts", part, str(suite.out)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        limits = ((suite.limit_s, process.terminate), (suite.limit_s + GRACE_S, kill))
        timers = [threading.Timer(after_s, stop) for after_s, stop in limits]
        for timer in timers:
            timer.start()
        try:
            with log.open("w") as file:
                for line in process.stdout or ():
                    file.write(line)
                    file.flush()
                    console.print(f"  {line.rstrip()}", markup=False)
            return process.wait()
        finally:
            for timer in timers:
                timer.cancel()
            if process.poll() is None:  # Ctrl-C
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
            kill()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RookeryError as error:
        sys.exit(fail(error))
