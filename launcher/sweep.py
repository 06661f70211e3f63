"""`rookery sweep`: demos under several settings and seeds, to measure what each setting changes.

With `--together`, every run changes about half of the settings, in a two-level design of strength 3: that of
Plackett and Burman (Biometrika 33, 1946) and its mirror image. Each effect is then the difference between two
halves of all runs, and no interaction of two settings is mistaken for the effect of a third.
"""

import json
import shlex
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator
from pydantic_settings import SettingsConfigDict
from rich.console import Console

from launcher.demo import demo
from launcher.plots.command import CompareSettings, compare_runs
from launcher.plots.runs import REPORT_FILE
from launcher.runs import SETTINGS_FILE
from launcher.settings import DemoSettings
from launcher.up import resolve_services
from rookery.errors import SetupError
from rookery.settings import Assignments

_ROWS = ("++-", "+++-+--", "++-+++---+-")
"""The first rows of the designs of Plackett and Burman for 4, 8 and 12 runs. The others are rotations."""

MOST_TOGETHER = 12


class SweepSettings(DemoSettings):
    """Run the demo under several settings and seeds, and print what each setting changes.

    Accepts all settings of `rookery demo`, which are those of the first configuration. Every other one makes
    the changes of one --vary. With --together, there are fewer runs, and each makes about half of the
    changes: 8 runs for up to 4 changes, 16 for up to 8, 24 for up to 12. A stopped sweep continues if it is
    started again. --dry-run lists the runs and checks the settings of each.
    """

    model_config = SettingsConfigDict(env_prefix="SWEEP_")

    run: str = Field(default="sweep", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the sweep. Its runs are NAME-00, NAME-01, ..., the first one without a change."""
    vary: Assignments = Field(min_length=1)
    """What a configuration changes, repeatable: SERVICE.SETTING=VALUE as for --set, or a flag of the demo
    without its dashes, such as batch_groups=64. Several, separated by spaces, change together."""
    seeds: tuple[NonNegativeInt, ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds, separated by commas. Every configuration runs with each; with --together, they take turns."""
    together: bool = False
    """Vary all settings together, and estimate the effect of each by least squares."""

    @field_validator("vary")
    @classmethod
    def _known(cls, changes: tuple[str, ...]) -> tuple[str, ...]:
        for change in changes:
            DemoSettings.model_validate(_changed({}, [change]))
        return changes

    @model_validator(mode="after")
    def _has_a_design(self) -> Self:
        if self.together and len(self.vary) > MOST_TOGETHER:
            raise ValueError(f"--together is for at most {MOST_TOGETHER} --vary, not {len(self.vary)}")
        return self


def sweep(settings: SweepSettings, console: Console) -> int:
    """Makes the runs that have no report yet, and prints the comparison. Returns the exit status.

    Raises:
        RookeryError: a run failed; the sweep can be started again.
    """
    runs = list(_runs(settings))
    for run, said in runs:
        if _is_done(run):
            continue
        console.rule(f"{said} ({len(runs)} runs)")
        if status := demo(run, console):
            return status
    names = [run.run for run, _ in runs]
    comparison = CompareSettings(runs=names, runs_dir=settings.runs_dir, effects=settings.together)
    return compare_runs(comparison, console)


def print_runs(settings: SweepSettings) -> None:
    """Prints what each run changes, for --dry-run.

    Raises:
        SetupError: a setting of a run or of its services is wrong.
    """
    for run, said in _runs(settings):
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        deque(resolve_services(run), maxlen=0)


def _runs(settings: SweepSettings) -> Iterator[tuple[DemoSettings, str]]:
    """The settings of each run, and what they change."""
    given = settings.model_dump(include=settings.model_fields_set - {"dry_run"}, mode="json")
    base = {name: value for name, value in given.items() if name in DemoSettings.model_fields}
    for number, (seed, changes) in enumerate(_design(settings)):
        name = f"{settings.run}-{number:02}"
        run = DemoSettings.model_validate({**_changed(base, changes), "run": name, "seed": seed})
        yield run, "; ".join((f"{name}: seed {seed}", *changes))


def _is_done(run: DemoSettings) -> bool:
    """Whether the run has its report.

    Raises:
        SetupError: there is such a run with other settings.
    """
    folder = run.runs_dir / run.run
    if (folder / SETTINGS_FILE).exists():
        stored = json.loads((folder / SETTINGS_FILE).read_text())
        wanted = run.model_dump(include=run.model_fields_set, mode="json")
        if other := [name for name, value in wanted.items() if stored.get(name) != value]:
            said = f"{other[0]} = {stored.get(other[0])!r}, not {wanted[other[0]]!r}"
            raise SetupError(f"run {run.run!r} was made with {said}: choose another name (--run)")
    return (folder / REPORT_FILE).exists()


def _design(settings: SweepSettings) -> list[tuple[int, list[str]]]:
    """The seed and the changes of each run."""
    if settings.together:
        rows = screening(len(settings.vary))  # a run and its mirror image, the next one, have the same seed
        seeds = [settings.seeds[number // 2 % len(settings.seeds)] for number in range(len(rows))]
        return [(seed, list(compress(settings.vary, row))) for seed, row in zip(seeds, rows, strict=True)]
    configurations = [[], *([change] for change in settings.vary)]
    return [(seed, changes) for changes in configurations for seed in settings.seeds]


def screening(factors: int) -> list[tuple[bool, ...]]:
    """A two-level design of strength 3, [runs, factors], for at most `MOST_TOGETHER`. The first run has none.

    Any three factors have each of their eight combinations equally often.

    >>> [''.join('+' if on else '-' for on in row) for row in screening(4)]
    ['----', '++++', '++--', '--++', '-++-', '+--+', '+-+-', '-+-+']
    """
    first = next(row for row in _ROWS if len(row) + 1 >= factors)
    rotations = (first[len(first) - turn :] + first[: len(first) - turn] for turn in range(len(first)))
    rows = [(*(sign == "+" for sign in row), False) for row in ("-" * len(first), *rotations)]
    return [side[:factors] for row in rows for side in (row, tuple(not on for on in row))]


def _changed(base: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """`base` with the changes, each `NAME=VALUE` or several of them, separated by spaces."""
    values, assigned = dict(base), list(base.get("set", ()))
    for assignment in (part for change in changes for part in shlex.split(change)):
        name, equals, value = assignment.partition("=")
        if "." in name or not equals:
            assigned.append(assignment)
        else:
            values[name.replace("-", "_")] = value
    return {**values, "set": tuple(assigned)}
