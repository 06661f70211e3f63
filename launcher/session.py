"""One run from start to stop: its plan, services, observer and display.

When the `with` block ends, for whatever reason, all services are stopped in reverse order.
"""

import logging
import math
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Self

from rich.console import Console

from launcher import dashboard
from launcher.observer import Observer, Snapshot
from launcher.plan import HOST, Plan, make_plan
from launcher.runs import ENDPOINTS_FILE, HELD_OUT_FILE, MANIFEST_FILE, record_start, write_json
from launcher.settings import SETTINGS_FILE, UpSettings
from launcher.supervisor import State, Supervisor
from rookery.folder_lock import LOCK_FILE, locked
from rookery.hub import model_folder
from rookery.logs import TextFormatter
from rookery.processes.child import Watchdog
from rookery.processes.ports import Ports, PortTaken

logger = logging.getLogger(__name__)

UP_LOG = "up.log"
TICK_S = 0.2
MAX_PORT_CHANGES = 5
"""How many times a run is started again because a port was taken."""
EVALUATION_S = 600.0
"""How long the end of a run waits for the evaluation of its last version."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class End(StrEnum):
    """Why training ended."""

    STEPS = "all steps are done"
    TIME = "time is up"
    INTERRUPT = "interrupted"


class Session:
    """A run. Use it as a context manager: leaving the `with` block stops all services."""

    plan: Plan

    def __init__(self, settings: UpSettings, console: Console) -> None:
        self.settings, self.console = settings, console
        self.interrupts = self._port_changes = 0
        self._ready = False
        self._exits = ExitStack()
        self._training_since: float | None = None

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            model_folder(self.settings.model)
            run_dir = self.settings.runs_dir / self.settings.run
            exits.enter_context(locked(run_dir))  # before the ports, which a live run has
            if not (run_dir / SETTINGS_FILE).exists():
                exits.callback(self._forget_unless_ready, run_dir)
            self._ports = exits.enter_context(Ports(HOST))
            self.plan = make_plan(self.settings, self._ports)
            exits.enter_context(_logging_to(self.plan))
            exits.enter_context(self._signals())
            self._watchdog = Watchdog()
            exits.callback(self._watchdog.close)
            self._display = exits.enter_context(dashboard.Display(self.console))
            record_start(self.plan.run_dir)
            self._prepare()
            exits.callback(self.stop)
            exits.callback(lambda: self._observer.close())
            self._exits = exits.pop_all()
        return self

    def _prepare(self) -> None:
        """Writes the run's files and starts the observer. `train` starts the services."""
        self._write_files()
        self._supervisor = Supervisor(
            self.plan.stages, self._watchdog, finisher="trainer", optional={"viewer"}
        )
        self._observer = Observer(
            self.plan.probe_urls,
            redis_url=self.plan.redis_url,
            run=self.plan.run,
            run_dir=self.plan.run_dir,
            access=self.settings.access,
        )
        self._observer.start()

    def _forget_unless_ready(self, run_dir: Path) -> None:
        """Keeps `rookery status` from showing a new run that did not start: of it, at most logs are left."""
        if self._ready:
            return
        (run_dir / ENDPOINTS_FILE).unlink(missing_ok=True)
        logs = run_dir / "logs"
        if self.interrupts or any(path.name != UP_LOG for path in logs.glob("*")):
            return  # to go on with, or to look into
        for name in (f"logs/{UP_LOG}", SETTINGS_FILE, HELD_OUT_FILE, MANIFEST_FILE, LOCK_FILE):
            (run_dir / name).unlink(missing_ok=True)
        shutil.rmtree(run_dir / "settings", ignore_errors=True)
        with suppress(OSError):  # missing, or not empty because it was there before
            logs.rmdir()
        with suppress(OSError):
            run_dir.rmdir()

    def __exit__(self, *error: object) -> None:
        self._exits.close()

    def train(self, *, deadline: float = math.inf, least_steps: int = 0) -> End:
        """Starts the services and waits until all steps are done, time is up, or Ctrl-C. Returns which.

        Time is up after `--minutes` of training, or at the `deadline` (`time.monotonic`) if `least_steps` are
        done then. Raises `SetupError` if a service cannot start; `RookeryError` if a service crashed too
        often.
        """
        while not self.interrupts:
            try:
                self._supervisor.step(self._observer.snapshot.probes)
            except PortTaken as taken:
                self._start_again(taken)
            self._show()
            if not self._ready and (self._supervisor.all_ready or self._supervisor.finished):
                self._ready = True
                self._keep_settings()
            if self._supervisor.finished:
                self.look()
                return End.STEPS
            if self._time_is_up() or (time.monotonic() > deadline and self.steps_done >= least_steps):
                return End.TIME
            time.sleep(TICK_S)
        return End.INTERRUPT

    def _start_again(self, taken: PortTaken) -> None:
        """Restarts all services with another port. A new port is a new setting of the other services too."""
        self._ports.replace(taken.port)
        self._port_changes += 1
        if self._port_changes > MAX_PORT_CHANGES:
            raise taken
        logger.warning("%s: starting again with another port", taken)
        self.say(f"{taken}: starting again with another port")
        self.stop()
        self._observer.close()
        self.plan = make_plan(self.settings, self._ports)
        self._prepare()

    def finish_evaluation(self) -> None:
        """Waits until the last version that is due is evaluated, at most `EVALUATION_S`, or until Ctrl-C."""
        every, run = self.settings.evaluate_every, self.look().overview
        if not every or run is None or run.committed is None:
            return
        due, deadline = run.committed - run.committed % every, time.monotonic() + EVALUATION_S
        self.say(f"waiting for the evaluation of version {due}")
        while not self.interrupts and time.monotonic() < deadline:
            evaluated = self._observer.snapshot.strength
            if evaluated and evaluated[-1]["version"] >= due:
                return
            self._supervisor.step(self._observer.snapshot.probes)
            self._show()
            time.sleep(TICK_S)

    def await_ready(self, name: str) -> None:
        """Waits until a service is ready, or until Ctrl-C: the trainer of a finished run ends long before."""
        (member,) = (member for member in self._supervisor.members if member.command.name == name)
        while not self.interrupts and member.state is not State.READY:
            self._supervisor.step(self._observer.snapshot.probes)
            self._show()
            time.sleep(TICK_S)

    def stop(self, *names: str) -> None:
        """Stops the named services, or all of them if none is named. A second Ctrl-C kills them."""
        self._supervisor.stop(*names, hurry=lambda: self.interrupts > 1, tick=self._show)
        self._show()

    def look(self) -> Snapshot:
        """Refreshes the observer's snapshot and returns it."""
        self._observer.refresh()
        return self._observer.snapshot

    @property
    def steps_done(self) -> int:
        steps = self._observer.snapshot.steps
        return int(steps[-1]["step"]) if steps else 0

    def pause_display(self) -> None:
        """Stops drawing, so that another process can write to the terminal."""
        self._display.pause()

    def say(self, text: str) -> None:
        """Prints a line that stays on the terminal."""
        self._display.say(text)

    def _time_is_up(self) -> bool:
        if self._training_since is None and self._supervisor.all_ready:
            self._training_since = time.monotonic()
        if self._training_since is None or self.settings.minutes is None:
            return False
        return time.monotonic() - self._training_since > 60 * self.settings.minutes

    def _show(self) -> None:
        parts = [f"run {self.settings.run}", f"model {Path(self.settings.model).name}"]
        goal = f" of {self.settings.steps}" if self.settings.steps else ""
        parts.append(f"step {self.steps_done}{goal}")
        if self._training_since is not None:
            parts.append(dashboard.duration(time.monotonic() - self._training_since))
        self._display.show("  ".join(parts), self._supervisor.members, self._observer.snapshot)

    def _write_files(self) -> None:
        self.plan.write_settings()
        if not (self.plan.run_dir / SETTINGS_FILE).exists():
            self._keep_settings()  # those of a run that goes on are replaced once its services accept the new
        endpoints = {
            "run": self.plan.run,
            "redis_url": self.plan.redis_url,
            "probes": self.plan.probe_urls,
        }
        write_json(self.plan.run_dir / ENDPOINTS_FILE, endpoints)

    def _keep_settings(self) -> None:
        write_json(self.plan.run_dir / SETTINGS_FILE, self.settings.model_dump(mode="json"))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def interrupt(number: int, frame: FrameType | None) -> None:
            self.interrupts += 1

        before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _logging_to(plan: Plan) -> Iterator[None]:
    """Logs to logs/up.log in the run's folder, because the terminal is used by the display."""
    path = plan.run_dir / "logs" / UP_LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
