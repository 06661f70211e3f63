"""Displays a run while it trains: tables redrawn in place in a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.live import Live

from launcher import dashboard
from launcher.observer import Snapshot
from launcher.supervisor import Member, State

LINE_EVERY_S = 5.0
"""Minimum seconds between two step lines of the plain display."""


class Display(Protocol):
    """`show` displays the current state, `say` prints a line that stays, `pause` stops drawing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...

    def show(self, title: str, members: Sequence[Member], snapshot: Snapshot) -> None: ...

    def say(self, text: str) -> None: ...

    def pause(self) -> None: ...


def display(console: Console) -> Display:
    """A `LiveDisplay` if the console is a terminal, else a `PlainDisplay`."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


class LiveDisplay:
    """Tables redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, title: str, members: Sequence[Member], snapshot: Snapshot) -> None:
        if self._live.is_started:
            self._live.update(dashboard.screen(title, members, snapshot), refresh=True)

    def say(self, text: str) -> None:
        self._live.console.print(text, soft_wrap=True, highlight=False)

    def pause(self) -> None:
        self._live.stop()


class PlainDisplay:
    """Prints a line for each state change of a service, and one for a training step every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[str, State] = {}
        self._step: object = None
        self._line_at = -LINE_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        return None

    def show(self, title: str, members: Sequence[Member], snapshot: Snapshot) -> None:
        for member in members:
            name, state = member.command.name, member.state
            if self._states.get(name, State.WAITING) is not state:
                self._states[name] = state
                self.say(f"{name}: {state} {member.note}".rstrip())
        last = snapshot.steps[-1] if snapshot.steps else {}
        if last.get("step") != self._step and time.monotonic() - self._line_at >= LINE_EVERY_S:
            self._step, self._line_at = last.get("step"), time.monotonic()
            self.say(dashboard.step_line(last))

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def pause(self) -> None:
        """Does nothing: this display never redraws."""
