"""Displays a run: tables redrawn in place in a terminal, plain lines elsewhere. Makes no requests."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
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
    "entropy": "entropy, nats",
    "zero_variance_share": "equal rewards",
    "identical_answers": "identical answers",
    "distinct_candidates": "distinct candidates",
    "piece_distance": "distance of pieces",
    "step_s": "seconds a step",
    "rollout_wait_s": "waited, seconds",
}
"""Statistics shown in the learning table, if the trainer's records have them, with their titles."""

WIDE, TALL = 120, 50
"""Columns and lines of a terminal that has room for all figures. With less, only the main ones are shown."""

NARROW = 60
"""With fewer columns, tables are below each other."""

MAIN = {
    *("reward", "perfect_p", "perfect_a", "legal_rate", "loss", "entropy", "step_s", "rollout_wait_s"),
    *("legal_rate_greedy", "regret_legal_greedy", "elo"),
}
"""The main figures of learning and of strength."""

LINE_EVERY_S = 5.0
"""Minimum seconds between two step lines of the plain display."""

STRENGTH = {
    "legal_rate_greedy": "legal moves",
    "action_accuracy_greedy": "best moves",
    "regret_legal_greedy": "regret",
    "regret_legal_random": "regret, random move",
    "piece_distance": "distance of pieces",
    "distinct_candidates": "distinct candidates",
    "elo": "Elo lead",
}
"""Figures of evaluated versions that are shown, with their titles. Answers are greedy."""

_PERCENT = (
    "legal_rate", "box_rate", "zero_variance_share", "identical_answers", "distinct_candidates",
    "legal_rate_greedy", "action_accuracy_greedy", "perfect_p", "perfect_a",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """A service: its state, and where this is known, since when, and how often it was restarted."""

    name: str
    state: str
    style: str
    note: str
    since: str = ""
    restarts: str = ""


def member_rows(members: Iterable[Member]) -> list[ServiceRow]:
    """The services of a supervisor."""
    now = time.monotonic()
    return [
        ServiceRow(
            name=member.command.name,
            state=member.state,
            style=_COLOURS[member.state],
            note=member.note,
            since=duration(now - member.changed_at),
            restarts=str(member.restarts or ""),
        )
        for member in members
    ]


def probe_rows(answers: Mapping[str, str | None]) -> list[ServiceRow]:
    """The services and whether they are ready. A value of None means ready, a text is the reason why not."""
    return [
        ServiceRow(name, "ready", "green", "") if reason is None else ServiceRow(name, "away", "red", reason)
        for name, reason in answers.items()
    ]


def services(rows: Sequence[ServiceRow]) -> Table:
    """The services, one in each line."""
    times = ("for", "restarts") if any(row.since for row in rows) else ()
    table = _table("service", "state", *times, "note", right=times)
    for row in rows:
        values = (row.since, row.restarts) if times else ()
        table.add_row(row.name, Text(row.state, row.style), *values, _line(row.note, "dim"))
    return table


def services_in_short(rows: Sequence[ServiceRow]) -> Group:
    """The services by state, and in a line of its own each that has a note or was restarted."""
    lines: dict[str, Text] = {}
    for row in rows:
        is_noted = bool(row.note or row.restarts)
        line = lines.setdefault(row.name if is_noted else row.state, _line(""))
        if not is_noted:
            line.append(f" {row.name}" if line else f"{row.state}: {row.name}", row.style)
            continue
        restarts = f"restarts: {row.restarts}" if row.restarts else ""
        line.append(f"{row.name}: {row.state} ", row.style)
        line.append(" ".join(filter(None, (row.since, restarts, row.note))), "dim")
    return Group(*lines.values())


def late(snapshot: Snapshot) -> Iterable[Text]:
    """Servers more than one version behind, and who waits longer than expected."""
    for server, versions in snapshot.behind.items():
        if versions > 1:
            yield _line(f"behind by {versions:.0f} versions: {server}", "red")
    for wait, seconds in snapshot.waits.items():
        yield _line(f"waits for {duration(seconds)}: {wait}", "red")


def flow(snapshot: Snapshot, *, short: bool = False) -> Table:
    """The groups by result, and the trained and served versions."""
    table = _table("groups", "", right=("",), edge=not short)
    if (run := snapshot.overview) is None:
        table.add_row(_line("redis does not answer", "red"), "")
        return table
    for name, value in _flow_rows(run):
        table.add_row(_line(name), value)
    versions = f"{_number(run.committed)} / {_number(snapshot.served)}"
    table.add_row(_line("version trained / served"), versions)
    for name, seconds in snapshot.idle_s.items():
        if seconds >= 0.5:
            table.add_row(_line(f"rollouts idle: {name}"), f"{seconds:.0f} s")
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


def learning(steps: Sequence[Mapping[str, Any]], *, short: bool = False) -> Table:
    """Mean statistics of the first and the last `WINDOW` steps."""
    heads = (f"first {WINDOW}", f"last {WINDOW}")
    table = _table("learning", *heads, right=heads, edge=not short)
    for key, title in LEARNING.items():
        values = [float(step[key]) for step in steps if isinstance(step.get(key), int | float)]
        if values and (key in MAIN or not short):
            table.add_row(_line(title), _figure(key, values[:WINDOW]), _figure(key, values[-WINDOW:]))
    return table


def strength(rows: Sequence[Mapping[str, Any]], *, short: bool = False) -> Table:
    """The figures of the version that was evaluated first, and of the last one; in short, the last alone."""
    shown = (rows[-1],) if short else (rows[0], rows[-1])
    table = _table("held out", *(f"version {row['version']}" for row in shown), edge=not short)
    for key, title in STRENGTH.items():
        if all(key in row["metrics"] for row in shown) and (key in MAIN or not short):
            table.add_row(_line(title), *(_estimate(key, row["metrics"][key]) for row in shown))
    return table


def result_tables(snapshot: Snapshot, *, short: bool = False) -> list[RenderableType]:
    """What the run has learned, and how strong its versions are if they were evaluated."""
    tables: list[RenderableType] = [learning(snapshot.steps, short=short)]
    if snapshot.strength:
        tables += [*([Text()] * short), strength(snapshot.strength, short=short)]
    return tables


@dataclass(frozen=True, slots=True)
class Page:
    """A run: all that is known where there is room, or else in short. No line is wrapped."""

    title: str
    services: Sequence[ServiceRow]
    snapshot: Snapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        short = options.max_width < WIDE or (console.is_terminal and console.height < TALL)
        yield Text(self.title, "bold", no_wrap=True, overflow="ellipsis")
        yield services_in_short(self.services) if short else services(self.services)
        yield from late(self.snapshot)
        run = self.snapshot.overview
        if self.snapshot.steps or (run and run.counts.generated):
            tables = flow(self.snapshot, short=short), Group(*result_tables(self.snapshot, short=short))
            if options.max_width < NARROW:
                yield from tables
                return
            grid = Table.grid(padding=(0, 2 if short else 4))
            grid.add_row(*tables)
            yield grid


def screen(title: str, members: Sequence[Member], snapshot: Snapshot) -> Page:
    """The live screen of `rookery up`."""
    return Page(title, member_rows(members), snapshot)


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


def _line(text: str, style: str = "") -> Text:
    """A text that is cut where it does not fit."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _table(*columns: str, right: Sequence[str] = (), edge: bool = True) -> Table:
    """A table that cuts texts of `_line` where there is no room, but no figures. `edge`: lines around it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=edge)
    for number, column in enumerate(columns):
        justify: JustifyMethod = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=number > 0 and column != "note")
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
