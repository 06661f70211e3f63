"""Displays a run: tables redrawn in place in a terminal, plain lines elsewhere. Makes no requests."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from statistics import fmean
from typing import Any, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from launcher.observer import WINDOW, Snapshot
from launcher.supervisor import Member, State
from rookery.intervals import estimate_text
from rookery.streams.state import Overview

_COLOURS = {
    State.WAITING: "dim",
    State.STARTING: "yellow",
    State.READY: "green",
    State.UNREADY: "yellow",
    State.RESTARTING: "red",
    State.DONE: "green",
    State.STOPPED: "dim",
}

LEARNING = {
    "reward": "mean reward",
    "perfect_p": "perfect P: lines",
    "perfect_a": "perfect A: lines",
    "legal_rate": "legal moves",
    "box_rate": "boxed answers",
    "loss": "loss",
    "grad_norm": "gradient norm",
    "entropy": "entropy, nats a token",
    "zero_variance_share": "groups of equal rewards",
    "identical_answers": "identical answers",
    "distinct_candidates": "distinct candidates",
    "piece_distance": "pieces: distance from engine",
    "step_s": "seconds a step",
    "rollout_wait_s": "waited for groups, s",
}
"""Statistics shown in the learning table, if the trainer's records have them, with their titles."""

LINE_EVERY_S = 5.0
"""Minimum seconds between two step lines of the plain display."""

STRENGTH = {
    "legal_rate_greedy": "legal moves",
    "action_accuracy_greedy": "best moves",
    "regret_legal_greedy": "regret",
    "regret_legal_random": "regret of a random move",
    "piece_distance": "pieces: distance from engine",
    "distinct_candidates": "distinct candidates",
    "elo": "Elo above opponent",
}
"""Figures of evaluated versions that are shown, with their titles. Answers are greedy."""

_PERCENT = (
    "legal_rate", "box_rate", "zero_variance_share", "identical_answers", "distinct_candidates",
    "legal_rate_greedy", "action_accuracy_greedy", "perfect_p", "perfect_a",
)  # fmt: skip


def services(members: Iterable[Member]) -> Table:
    """The services with their state, how long they have been in it, and a note."""
    table = _table("service", "state", "for", "restarts", "note", right=("for", "restarts"))
    now = time.monotonic()
    for member in members:
        table.add_row(
            member.command.name,
            Text(member.state, _COLOURS[member.state]),
            duration(now - member.changed_at),
            str(member.restarts or ""),
            Text(member.note, "dim", overflow="ellipsis", no_wrap=True),
        )
    return table


def probes(answers: Mapping[str, str | None]) -> Table:
    """The services and whether they are ready. A value of None means ready, a text is the reason why not."""
    table = _table("service", "state", "note")
    for name, reason in answers.items():
        state = Text("ready", "green") if reason is None else Text("away", "red")
        table.add_row(name, state, Text(reason or "", "dim"))
    return table


def flow(snapshot: Snapshot) -> Table:
    """The groups by result, trained and served versions, and servers more than one version behind."""
    table = _table("groups", "", right=("",))
    if (run := snapshot.overview) is None:
        table.add_row(Text("redis does not answer", "red"), "")
        return table
    for name, value in _flow_rows(run):
        table.add_row(name, value)
    table.add_row("version trained / served", f"{_number(run.committed)} / {_number(snapshot.served)}")
    late = {f"behind: {server}": f"{n:.0f} versions" for server, n in snapshot.behind.items() if n > 1}
    late |= {f"waits: {wait}": duration(seconds) for wait, seconds in snapshot.waits.items()}
    idle = {f"rollouts idle: {name}": f"{seconds:.0f} s" for name, seconds in snapshot.idle_s.items()}
    for name, text in (late | idle).items():
        table.add_row(name, Text(text, "red" if name in late else ""))
    return table


def _flow_rows(run: Overview) -> Iterable[tuple[str, RenderableType]]:
    counts = run.counts
    yield "generated", f"{counts.generated:,}"
    yield "  trained", f"{counts.trained:,}"
    for reason, count in counts.dropped.items():
        yield f"  dropped: {reason}", f"{count:,}"
    for stream, count in counts.dead.items():
        yield f"  dead: {stream}", Text(f"{count:,}", "red")
    if run.dead_deleted:
        yield "  of the dead, deleted", f"{run.dead_deleted:,}"
    yield "  in stream", f"{run.traces:,}"
    yield "  astray", Text(f"{run.astray:,}", "red" if run.astray else "dim")
    if counts.archive:
        yield from _archive_rows(run)
    yield "positions in stream", f"{run.positions:,}"


def _archive_rows(run: Overview) -> Iterable[tuple[str, RenderableType]]:
    yield "archived", f"{run.counts.archive.get('archived', 0):,}"
    yield "  waiting", f"{run.unarchived:,}"
    yield "  astray", Text(f"{run.archive_astray:,}", "red" if run.archive_astray else "dim")
    for result in ("missed", "unreadable", "duplicate"):
        if count := run.counts.archive.get(result):
            yield f"  {result}", Text(f"{count:,}", "red")


def learning(steps: Sequence[Mapping[str, Any]]) -> Table:
    """Mean statistics of the first and the last `WINDOW` steps."""
    heads = (f"first {WINDOW}", f"last {WINDOW}")
    table = _table("learning", *heads, right=heads)
    for key, title in LEARNING.items():
        values = [float(step[key]) for step in steps if isinstance(step.get(key), int | float)]
        if values:
            table.add_row(title, _figure(key, values[:WINDOW]), _figure(key, values[-WINDOW:]))
    return table


def strength(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The figures of the version that was evaluated first, and of the last one."""
    first_and_last = (rows[0], rows[-1])
    table = _table("held out", *(f"version {row['version']}" for row in first_and_last))
    for key, title in STRENGTH.items():
        if all(key in row["metrics"] for row in first_and_last):
            table.add_row(title, *(_estimate(key, row["metrics"][key]) for row in first_and_last))
    return table


def result_tables(snapshot: Snapshot) -> list[Table]:
    """What the run has learned, and how strong its versions are if they were evaluated."""
    return [learning(snapshot.steps), *([strength(snapshot.strength)] if snapshot.strength else [])]


def side_by_side(*parts: RenderableType) -> Table:
    """The tables next to each other."""
    grid = Table.grid(padding=(0, 4))
    grid.add_row(*parts)
    return grid


def screen(title: str, members: Sequence[Member], snapshot: Snapshot) -> Group:
    """The live screen of `rookery up`."""
    parts: list[RenderableType] = [Text(title, "bold"), services(members)]
    if snapshot.steps or (snapshot.overview and snapshot.overview.counts.generated):
        parts += [Text(), side_by_side(flow(snapshot), Group(*result_tables(snapshot)))]
    return Group(*parts)


def step_line(step: Mapping[str, Any]) -> str:
    """One training step as one line of text, for output that cannot be redrawn."""
    keys = ("reward", "legal_rate", "box_rate", "loss", "grad_norm", "step_s", "rollout_wait_s")
    figures = [f"{key} {_figure(key, [float(step[key])])}" for key in keys if key in step]
    return f"step {step.get('step', '?')}: " + ", ".join(figures)


def duration(seconds: float) -> str:
    """Minutes and seconds.

    >>> duration(75)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _figure(key: str, values: Sequence[float]) -> str:
    mean = fmean(values)
    return f"{mean:.1%}" if key in _PERCENT else f"{mean:.3f}"


def _estimate(key: str, estimate: Mapping[str, Any]) -> str:
    """A mean with its interval.

    >>> _estimate("elo", {"mean": None, "ci95": [183.2, None]})
    'at least 183'
    """
    form = ".0%" if key in _PERCENT else ".0f" if key == "elo" else ".3f"
    return estimate_text(estimate["mean"], estimate["ci95"] or (None, None), form)


def _number(version: int | None) -> str:
    return "-" if version is None else str(version)


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


class Display(AbstractContextManager["Display"]):
    """Shows a run: as tables redrawn in place if the console is a terminal, else as lines.

    There is a line for each state change of a service, one a minute for a service that is not ready, with the
    reason, and one for a training step every few seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        )
        self._last_states: dict[str, tuple[State, int]] = {}
        self._step: object = None
        self._line_at = -LINE_EVERY_S

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.pause()

    def show(self, title: str, members: Sequence[Member], snapshot: Snapshot) -> None:
        if self._live is None:
            self._print_changes(members, snapshot)
        elif self._live.is_started:
            self._live.update(screen(title, members, snapshot), refresh=True)

    def _print_changes(self, members: Sequence[Member], snapshot: Snapshot) -> None:
        for member in members:
            name, state = member.command.name, member.state
            awaited = state in (State.STARTING, State.UNREADY)
            minutes = int(time.monotonic() - member.changed_at) // 60 if awaited else 0
            if self._last_states.get(name, (State.WAITING, 0)) != (state, minutes):
                self._last_states[name] = (state, minutes)
                since = f" for {minutes} min:" if minutes else ""
                self.say(f"{name}: {state}{since} {member.note}".rstrip(" :"))
        last = snapshot.steps[-1] if snapshot.steps else {}
        if last.get("step") != self._step and time.monotonic() - self._line_at >= LINE_EVERY_S:
            self._step, self._line_at = last.get("step"), time.monotonic()
            self.say(step_line(last))

    def say(self, text: str) -> None:
        """Prints a line that stays, above the tables."""
        self._console.print(text, soft_wrap=True, highlight=False)

    def pause(self) -> None:
        if self._live:
            self._live.stop()
