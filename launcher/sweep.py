"""`rookery sweep`: demos under several settings and seeds, to measure what each change of a setting does.

With `--together`, every run makes about half of the changes, in a two-level design of strength 3: that of
Plackett and Burman (Biometrika 33, 1946) and its mirror image. Each effect is then the difference between two
halves of all runs, and no interaction of two changes is mistaken for the effect of a third.
"""

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveFloat, ValidationError, field_validator
from rich.console import Console
from rich.text import Text

from launcher.demo import demo
from launcher.plan import HOST, make_plan
from launcher.plots.command import print_comparison
from launcher.plots.comparison import NO_CHANGE, compare, effects
from launcher.plots.runs import REPORT_FILE, Configuration, Run, find_runs
from launcher.runs import write_json
from launcher.settings import DemoSettings
from rookery.errors import QUOTED_CHARS, SetupError, validation_message
from rookery.origins import last_origins
from rookery.processes.ports import Ports
from rookery.settings import Assignments
from rookery.terminal import SafeConsole

_ROWS = ("++-", "+++-+--", "++-+++---+-")
"""The first rows of the designs of Plackett and Burman for 4, 8 and 12 runs. The others are rotations."""

_LEAST_FREEDOM = 2
"""Degrees of freedom. With 1, intervals would be wider than those of one change at a time."""

_DECIDED = {"run", "runs_dir", "redis_url", "seed", "set", "dry_run", "from_version"}
"""Settings of the demo that the sweep decides."""

_INCIDENTAL = {"runs_dir", "redis_url", "view", "dry_run"}
"""Settings that may change when a sweep goes on."""


class SweptSettings(DemoSettings):
    """Those of a demo of a sweep, which are the same when it goes on."""

    @classmethod
    def default_preset(cls, stronger: Mapping[str, Any]) -> str | None:
        """As of a new demo."""
        return super().default_preset({name: stronger[name] for name in stronger if name != "run"})


class SweepSettings(SweptSettings):
    """Run the demo under several settings and seeds, and print what each change does.

    Accepts all settings of `rookery demo`. The first configuration has no change, each other one those of one
    --vary. With --together, there are fewer runs, and each makes about half of the changes: at most 12, in 8,
    16 or 24 runs. A stopped sweep continues, and a finished one prints its result again, if it is started
    again with the same settings.
    """

    run: str = Field(default="sweep", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the sweep. Its runs are NAME-00, NAME-01, ..."""
    vary: Assignments = ()
    """A change, repeatable: SERVICE.SETTING=VALUE as for --set, or a flag of the demo such as batch_groups=64
    or archive=false. Several, separated by spaces, are one change."""
    seeds: tuple[NonNegativeInt, ...] = (0, 1, 2)
    """Seeds, separated by commas. Every configuration runs with each; with --together, they take turns."""
    together: bool = False
    """Vary all settings together, and estimate the effect of each change by least squares."""
    keys: tuple[str, ...] = ()
    """Statistics to compare, repeatable, as for `rookery compare`."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of a table."""
    minutes: PositiveFloat | None = None
    """How long each run may take, about, as for `rookery demo`: a slow one trains and evaluates less.
    Default: as long as it needs."""
    dry_run: bool = False
    """Print the runs, check the settings of each, and exit."""

    @field_validator("vary")
    @classmethod
    def _changes(cls, changes: tuple[str, ...]) -> tuple[str, ...]:
        for change in changes:
            for assignment in shlex.split(change) or [""]:
                name, equals, _ = assignment.partition("=")
                is_setting = (
                    "." in name or name.replace("-", "_") in DemoSettings.model_fields.keys() - _DECIDED
                )
                if not (is_setting and equals):
                    raise ValueError(
                        f"{assignment[:QUOTED_CHARS]!r} is neither SERVICE.SETTING=VALUE nor a flag of "
                        "`rookery demo` that "
                        "can be varied, such as batch_groups=64"
                    )
        return changes

    @field_validator("vary", "seeds")
    @classmethod
    def _different(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise ValueError("one of them is given twice")
        return values


@dataclass(frozen=True, slots=True)
class SweptRun:
    """A run of a sweep."""

    settings: DemoSettings
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join((self.settings.run, f"seed {self.settings.seed}", *self.changes))

    @property
    def is_done(self) -> bool:
        return (self.settings.runs_dir / self.settings.run / REPORT_FILE).exists()

    def check(self) -> None:
        """Resolves the settings of all services. Raises `SetupError` if one of them is wrong."""
        try:
            with Ports(HOST) as ports:
                make_plan(self.settings, ports)
        except SetupError as error:
            raise SetupError(f"{self}: {error}") from error


def sweep(settings: SweepSettings, console: Console | None = None) -> int:
    """Makes the runs that have no report yet, and prints the comparison. Returns the exit status. Raises
    `RookeryError` if a setting is wrong, the name has been used, or a run failed. In the last case, the sweep
    can be started again."""
    console = console or SafeConsole()
    runs = plan_runs(settings)
    file = settings.runs_dir / f"{settings.run}.sweep.json"
    settings_by_run = {
        run.settings.run: run.settings.model_dump(mode="json", exclude=_INCIDENTAL) for run in runs
    }
    _check_name(file, settings_by_run)
    unfinished = [run for run in runs if not run.is_done]
    for run in unfinished:
        run.check()
    settings.runs_dir.mkdir(parents=True, exist_ok=True)
    write_json(file, settings_by_run)
    for run in unfinished:
        console.rule(Text(f"{run} ({len(runs)} runs)"))
        if status := demo(run.settings, console):
            return status
    recorded = find_runs([run.settings.run for run in runs], runs_dir=settings.runs_dir)
    if settings.together:
        changes = {change: [change in run.changes for run in runs] for change in settings.vary}
        comparison = effects(recorded, changes, keys=settings.keys)
    else:
        comparison = compare(_configurations(runs, recorded), keys=settings.keys)
    print_comparison(comparison, console, as_json=settings.json_)
    return 0


def print_runs(settings: SweepSettings) -> None:
    """Prints what each run changes, for --dry-run. Raises `SetupError` if a setting of a run or of its
    services is wrong."""
    for run in plan_runs(settings):
        sys.stdout.write(f"{run}\n")
        sys.stdout.flush()
        run.check()


def plan_runs(settings: SweepSettings) -> list[SweptRun]:
    """The runs of the settings parsed last: what the demo makes of the same flags, and the changes. Raises
    `SetupError` if a setting is wrong, or there are too many changes or seeds."""
    flags = {name for name, origin in last_origins().items() if origin in ("flag", "argument")}
    flag_values = {
        name: getattr(settings, name) for name in flags & DemoSettings.model_fields.keys() - _DECIDED
    }
    if not settings.vary or not settings.seeds or "seed" in flags:
        raise SetupError("rookery sweep needs --vary, at least once, and --seeds instead of --seed")
    assigned = [name for change in settings.vary for name in _by_name(shlex.split(change))]
    if settings.together and (twice := next((name for name in assigned if assigned.count(name) > 1), None)):
        raise SetupError(f"--together: {twice} is in two changes, which cannot be made together")
    runs = []
    for number, (seed, changes) in enumerate(_design(settings)):
        assignments = _by_name([*settings.set, *(part for change in changes for part in shlex.split(change))])
        values = {
            **flag_values,
            "run": f"{settings.run}-{number:02}",
            "runs_dir": settings.runs_dir,
            "redis_url": settings.redis_url,
            "minutes": settings.minutes,
            "seed": seed,
            "set": tuple(f"{name}={value}" for name, value in assignments.items() if "." in name),
            **{name.replace("-", "_"): value for name, value in assignments.items() if "." not in name},
        }
        try:
            runs.append(SweptRun(SweptSettings(**values), tuple(changes)))
        except ValidationError as error:
            message = validation_message(error.errors(include_url=False))
            raise SetupError(f"{'; '.join(changes)}: {message}") from error
    return runs


def _design(settings: SweepSettings) -> list[tuple[int, list[str]]]:
    """The seed and the changes of each run. Raises `SetupError` if no design has enough runs for all changes
    and seeds."""
    if not settings.together:
        configurations = [[], *([change] for change in settings.vary)]
        return [(seed, changes) for changes in configurations for seed in settings.seeds]
    factors, seeds = len(settings.vary), settings.seeds
    for design in map(screening, _ROWS):
        runs = len(design)
        if factors <= runs // 2 and runs - factors - min(len(seeds), runs // 2) >= _LEAST_FREEDOM:
            # A run and its mirror image, the next one, have the same seed.
            return [
                (seeds[number // 2 % len(seeds)], list(compress(settings.vary, row)))
                for number, row in enumerate(design)
            ]
    raise SetupError(f"--together: {factors} changes and {len(seeds)} seeds are too many for 24 runs")


def screening(first: str) -> list[tuple[bool, ...]]:
    """A two-level design of strength 3, [2n, n], from the first row of Plackett and Burman's for n runs.

    Any three factors have each of their eight combinations equally often. The first run has none of them.

    >>> ["".join("+" if on else "-" for on in row) for row in screening("++-")]
    ['----', '++++', '++--', '--++', '-++-', '+--+', '+-+-', '-+-+']
    """
    rotations = (first[len(first) - turn :] + first[: len(first) - turn] for turn in range(len(first)))
    rows = [(*(sign == "+" for sign in row), False) for row in ("-" * len(first), *rotations)]
    return [side for row in rows for side in (row, tuple(not on for on in row))]


def _by_name(assignments: Iterable[str]) -> dict[str, str]:
    """The values that are assigned, by name. The last one counts."""
    parts = [assignment.partition("=") for assignment in assignments]
    return {name: value for name, _, value in parts}


def _configurations(swept: Sequence[SweptRun], recorded: Sequence[Run]) -> list[Configuration]:
    """The recorded runs by their changes. Those without a change come first."""
    runs_by_name: dict[str, list[Run]] = {}
    for planned, run in zip(swept, recorded, strict=True):
        runs_by_name.setdefault("; ".join(planned.changes) or NO_CHANGE, []).append(run)
    return [Configuration(name, tuple(runs)) for name, runs in runs_by_name.items()]


def _check_name(file: Path, settings_by_run: Mapping[str, Mapping[str, Any]]) -> None:
    """Compares the settings of all runs with those of the sweep that has used the name before, if any. Raises
    `SetupError` if they differ, or other runs have these names."""
    if not file.exists():
        if taken := [run for run in settings_by_run if (file.parent / run).exists()]:
            raise SetupError(f"there is a run {taken[0]!r} already: choose another name (--run)")
        return
    stored = json.loads(file.read_text())
    for run, values in {**stored, **settings_by_run}.items():
        before, now = stored.get(run, {}), settings_by_run.get(run, {})
        if changed := [name for name in values if before.get(name) != now.get(name)]:
            difference = f"{changed[0]} = {before.get(changed[0])!r} and now {now.get(changed[0])!r}"
            raise SetupError(f"{file}: run {run!r} had {difference}: choose another name (--run)")
