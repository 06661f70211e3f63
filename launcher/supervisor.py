"""Starts the services of a run stage by stage, restarts those that crash, and stops them in reverse order.

`running` runs a single service for a while. `Supervisor` is a state machine without threads or output. The
caller calls `step` a few times a second with the results of the readiness probes, and reads `members` to
display the services.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import httpx

from launcher.observer import probe
from rookery.access import AccessSettings
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import Child, ServiceCommand, Watchdog, last_lines
from rookery.processes.ports import PortTaken, is_listening
from rookery.retries import pause_after

logger = logging.getLogger(__name__)

RESTARTS = 3
"""How many times a crashed service is restarted."""
RESET_RESTARTS_S = 300.0
"""The restarts of a service that was ready for this long are forgotten."""
_PAUSES_S = (1.0, 3.0, 9.0)
START_S = 900.0
"""How long `running` waits until a service is ready."""
STOP_S = 20.0
"""How long a service may take to stop before it is killed. Services finish open requests for up to 10 s."""
SETUP_STATUS = 2
"""Exit status of a process that cannot start. It is not restarted, because that would fail again."""


class State(StrEnum):
    """The state of a service."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"


@dataclass(eq=False)
class Member:
    """One service of the run. `changed_at` is when it entered its state, by `time.monotonic`."""

    command: ServiceCommand
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
    """Services in stages: a stage starts once the previous one is ready.

    `finisher` is the only service that may exit by itself, with status 0. The run goes on without those that
    are `optional`, if they crash too often.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[ServiceCommand]],
        watchdog: Watchdog,
        *,
        finisher: str,
        optional: Container[str] = (),
    ) -> None:
        self._stages = [[Member(command) for command in stage] for stage in stages]
        self._watchdog = watchdog
        self._finisher = finisher
        self._optional = optional

    @property
    def members(self) -> list[Member]:
        """All services, in the order in which they start."""
        return [member for stage in self._stages for member in stage]

    @property
    def all_ready(self) -> bool:
        return not any(map(self._is_awaited, self.members))

    @property
    def finished(self) -> bool:
        return any(m.command.name == self._finisher and m.state is State.DONE for m in self.members)

    def step(self, probes: Mapping[str, str | None]) -> None:
        """Starts services whose turn it is and updates the state of the others.

        `probes` has None for a service that is ready, or else the reason why it is not.

        Raises:
            PortTaken: a service exited because another process listens on its port.
            SetupError: a service cannot start; the message quotes the last line of its log.
            RookeryError: a service crashed too often.
        """
        for stage in self._stages:
            for member in stage:
                self._update(member, probes)
            if any(map(self._is_awaited, stage)):
                return

    def stop(self, *names: str, hurry: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> None:
        """Stops the named services, or all if none is named, from the last stage to the first. Services are
        killed once `hurry` returns True, or after `STOP_S`. `tick` is called while waiting."""
        for wave in self._stop_order():
            _stop([m for m in wave if not names or m.command.name in names], hurry=hurry, tick=tick)

    def _is_awaited(self, member: Member) -> bool:
        """Whether the next stage, or the training, waits for a service."""
        done = (State.READY, State.DONE, State.STOPPED)
        return member.state not in done and member.command.name not in self._optional

    def _stop_order(self) -> Iterable[list[Member]]:
        """Stages from the last to the first. The finisher is in the first wave, so its peers still run."""
        finishers = [m for m in self.members if m.command.name == self._finisher]
        first = [m for m in self._stages[-1] if m not in finishers] + finishers
        yield first
        for stage in reversed(self._stages[:-1]):
            yield [m for m in stage if m not in first]

    def _update(self, member: Member, probes: Mapping[str, str | None]) -> None:
        if member.state in (State.DONE, State.STOPPED):
            return
        if member.child is None:
            waited_s = time.monotonic() - member.changed_at
            if member.state is State.WAITING or waited_s >= pause_after(member.restarts, _PAUSES_S):
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

    def _ended(self, member: Member, status: int) -> None:
        name, log = member.command.name, member.command.log
        member.child = None
        if name == self._finisher and status == 0:
            member.enter(State.DONE)
            return
        if member.state is State.STARTING or status == SETUP_STATUS:
            _check_ports(member.command)
        if member.state is State.READY and time.monotonic() - member.changed_at > RESET_RESTARTS_S:
            member.restarts = 0
        member.restarts += 1
        if name in self._optional and (status == SETUP_STATUS or member.restarts > RESTARTS):
            logger.warning("%s ended %s; the run goes on without it (log: %s)", name, _how(status), log)
            member.enter(State.STOPPED, f"ended {_how(status)}")
            return
        if status == SETUP_STATUS:
            raise SetupError(f"{name} cannot start: {' '.join(last_lines(log, 1))} (log: {log})")
        if member.restarts > RESTARTS:
            lines = "\n".join(f"  | {line}" for line in last_lines(log, 8))
            times = f"{name} ended {member.restarts} times, the last time {_how(status)}"
            raise RookeryError(f"{times}. The end of {log}:\n{lines}")
        logger.warning("%s ended %s: restart %d of %d", name, _how(status), member.restarts, RESTARTS)
        member.enter(State.RESTARTING, f"ended {_how(status)}")


def _check_ports(command: ServiceCommand) -> None:
    for host, port in command.addresses:
        if is_listening(host, port):
            raise PortTaken(f"{command.name}: port {port} on {host} was taken by another process", port)


def _probed(member: Member, reason: str | None) -> None:
    if reason is None:
        member.enter(State.READY)
    else:
        member.enter(State.STARTING if member.state is State.STARTING else State.UNREADY, reason)


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"


def _stop(wave: Sequence[Member], *, hurry: Callable[[], bool], tick: Callable[[], None]) -> None:
    children = [(member, member.child) for member in wave if member.child]
    for member, child in children:
        member.note = "stopping"
        child.terminate()
    deadline = time.monotonic() + STOP_S
    while any(child.poll() is None for _, child in children):
        if hurry() or time.monotonic() > deadline:
            for _, child in children:
                child.kill()
        tick()
        time.sleep(0.05)
    for member in wave:
        member.child = None
        if member.state is not State.DONE:
            member.enter(State.STOPPED)


@contextmanager
def running(command: ServiceCommand) -> Iterator[Child]:
    """Starts a service, waits until it is ready, and stops it at the end. Raises `SetupError` if it ended, or
    was not ready in time; the message names its log."""
    with closing(Watchdog()) as watchdog:
        child = Child(command, watchdog)
        try:
            _wait(child, command)
            yield child
        finally:
            child.terminate()
            deadline = time.monotonic() + STOP_S
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            child.kill()


def _wait(child: Child, command: ServiceCommand) -> None:
    deadline = time.monotonic() + START_S
    with httpx.Client(verify=AccessSettings().access.client_tls()) as http:
        while (reason := probe(str(command.probe_url), http)) is not None:
            if child.poll() is not None:
                last_line = " ".join(last_lines(command.log, 1)).removeprefix("error: ")
                raise SetupError(f"the {command.name} ended: {last_line} (log: {command.log})")
            if time.monotonic() > deadline:
                raise SetupError(f"the {command.name} is not ready: {reason} (log: {command.log})")
            time.sleep(0.2)
