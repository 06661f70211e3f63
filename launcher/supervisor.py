"""Keeps the children of a run: starts them in order of health, restarts what crashes, ends them in reverse.

A state machine without threads or a screen: `step` is called a few times a second with what the
probes say, and `describe` tells what to show.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rookery.errors import RookeryError, SetupError
from rookery.processes.child import Child, Command, Watchdog, last_lines
from rookery.processes.ports import PortTaken, somebody_listens

logger = logging.getLogger(__name__)

RESTARTS = 3
"""Crashes of one service that are forgiven; each is forgotten after `FORGIVE_S` of health."""
FORGIVE_S = 300.0
_BACKOFF_S = (1.0, 3.0, 9.0)
STOP_S = 20.0
"""How long a service may take to end before it is killed; they drain for 10 s."""
SETUP_STATUS = 2
"""Exit status of a process that cannot start: trying again will not help."""


class State(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(eq=False)
class Member:
    """One service of the run."""

    command: Command
    state: State = State.WAITING
    note: str = ""
    restarts: int = 0
    child: Child | None = None
    changed_at: float = field(default_factory=time.monotonic)

    def enter(self, state: State, note: str = "") -> None:
        if state is not self.state:
            self.changed_at = time.monotonic()
        self.state, self.note = state, note


class Supervisor:
    """Children in stages: a stage starts when the one before is ready. `finisher` may end by itself."""

    def __init__(self, stages: Sequence[Sequence[Command]], watchdog: Watchdog, *, finisher: str) -> None:
        self._stages = [[Member(command) for command in stage] for stage in stages]
        self._watchdog = watchdog
        self._finisher = finisher

    @property
    def members(self) -> list[Member]:
        """Every service, in the order of starting."""
        return [member for stage in self._stages for member in stage]

    @property
    def all_ready(self) -> bool:
        return all(member.state in (State.READY, State.DONE) for member in self.members)

    @property
    def finished(self) -> bool:
        """Whether the finisher has ended well."""
        return any(m.command.name == self._finisher and m.state is State.DONE for m in self.members)

    def step(self, probes: Mapping[str, str | None]) -> None:
        """Starts what may start and looks after what runs; `probes`: None when ready, else why not.

        Raises:
            PortTaken: a service cannot listen on a port of its own.
            SetupError: a service cannot start; the message is its own.
            RookeryError: a service crashed too often.
        """
        for stage in self._stages:
            for member in stage:
                self._look_after(member, probes)
            if not all(member.state in (State.READY, State.DONE) for member in stage):
                return

    def stop(self, *names: str, hurry: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> None:
        """Ends the named children, or all, in reverse stages; kills them once `hurry` says so."""
        for wave in self._waves():
            _stop([m for m in wave if not names or m.command.name in names], hurry=hurry, tick=tick)

    def _waves(self) -> Iterable[list[Member]]:
        """Stages from the last to the first; the finisher goes first, while it can still reach the others."""
        finishers = [m for m in self.members if m.command.name == self._finisher]
        first = [m for m in self._stages[-1] if m not in finishers] + finishers
        yield first
        for stage in reversed(self._stages[:-1]):
            yield [m for m in stage if m not in first]

    def _look_after(self, member: Member, probes: Mapping[str, str | None]) -> None:
        if member.state in (State.DONE, State.STOPPED):
            return
        if member.child is None:
            if member.state is State.WAITING or self._rested(member):
                member.child = Child(member.command, self._watchdog)
                member.enter(State.STARTING)
            return
        status = member.child.poll()
        if status is not None:
            self._ended(member, status)
        elif member.command.probe_url is None:
            member.enter(State.READY)
        elif member.command.name in probes:
            _probed(member, probes[member.command.name])

    def _rested(self, member: Member) -> bool:
        wait_s = _BACKOFF_S[min(member.restarts, len(_BACKOFF_S)) - 1]
        return time.monotonic() - member.changed_at >= wait_s

    def _ended(self, member: Member, status: int) -> None:
        name, log = member.command.name, member.command.log
        member.child = None
        if name == self._finisher and status == 0:
            member.enter(State.DONE)
            return
        if member.state is State.STARTING or status == SETUP_STATUS:
            for host, port in member.command.addresses:
                if somebody_listens(host, port):
                    raise PortTaken(f"{name}: port {port} on {host} was taken by another process", port)
        if status == SETUP_STATUS:
            raise SetupError(f"{name} cannot start: {' '.join(last_lines(log, 1))} (log: {log})")
        if member.state is State.READY and time.monotonic() - member.changed_at > FORGIVE_S:
            member.restarts = 0
        member.restarts += 1
        if member.restarts > RESTARTS:
            raise RookeryError(f"{name} ended {member.restarts} times, now {_how(status)}{_quoted(log)}")
        logger.warning("%s ended %s: restart %d of %d", name, _how(status), member.restarts, RESTARTS)
        member.enter(State.RESTARTING, f"ended {_how(status)}")


def _probed(member: Member, reason: str | None) -> None:
    if reason is None:
        member.enter(State.READY)
    else:
        member.enter(State.STARTING if member.state is State.STARTING else State.UNREADY, reason)


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def _quoted(log: Path) -> str:
    lines = "\n".join(f"  | {line}" for line in last_lines(log, 8))
    return f". The end of {log}:\n{lines}"


def _stop(wave: Sequence[Member], *, hurry: Callable[[], bool], tick: Callable[[], None]) -> None:
    running = [(member, member.child) for member in wave if member.child]
    for member, child in running:
        member.note = "stopping"
        child.terminate()
    deadline = time.monotonic() + STOP_S
    while any(child.poll() is None for _, child in running):
        if hurry() or time.monotonic() > deadline:
            for _, child in running:
                child.kill()
        tick()
        time.sleep(0.05)
    for member in wave:
        member.child = None
        if member.state is not State.DONE:
            member.enter(State.STOPPED)
