"""A pipeline file: settings and steps.

A pipeline file has settings and steps. A step is one `rookery` command; its output goes to a folder of its
own, to which `{NAME}` refers in later steps:

    [settings]
    games = "samples/lichess.pgn.zst"

    [[steps]]
    name = "examples"
    run = "data moves --source {games} --count 1000 --out {examples}"
    reads = ["{games}"]

    [[steps]]
    name = "sft"
    run = "sft --model models/rook-tiny --data {examples}/moves.jsonl --out {sft}"
    outputs = ["model"]
"""

import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from rookery.errors import SetupError, validation_message

REFERENCE = re.compile(r"\{([^{}]*)\}")
"""A reference to a setting or a step, by name."""
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]


class _StepTable(BaseModel, extra="forbid"):
    """A `[[steps]]` table."""

    name: _Name
    run: str
    """A `rookery` command without the word `rookery`."""
    reads: tuple[str, ...] = ()
    """Files and folders that the command reads, besides those of earlier steps."""
    outputs: tuple[str, ...] = ()
    """What it writes to its folder that others need: files and folders. Empty: everything."""
    gpus: int = Field(default=0, ge=0)
    """GPUs that it needs. Only for `rookery pipeline export`."""
    serve: str = ""
    """A model or a version of a run, as `rookery evaluate` names it, that is served during the step.
    `{url}` and `{served}` are the server's URL and the model's name there."""


class _PipelineTable(BaseModel, extra="forbid"):
    description: str = ""
    settings: dict[_Name, str | int | float | bool] = Field(default_factory=dict)
    steps: list[_StepTable] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """A step whose references are resolved, except those to its server. `reads` are the paths that it reads.
    `folder` is its own, and `outputs` are the paths in it that count."""

    number: int
    name: str
    argv: tuple[str, ...]
    reads: tuple[str, ...]
    folder: Path
    outputs: tuple[Path, ...]
    serve: str = ""
    gpus: int = 0

    @property
    def command(self) -> str:
        return shlex.join(self.argv) + (f"  # while serving {self.serve}" if self.serve else "")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline file with its settings, and the folder of its outputs. `overrides` are those of `--set`."""

    name: str
    description: str
    out: Path
    overrides: Mapping[str, str]
    settings: Mapping[str, str]
    steps: tuple[PipelineStep, ...]

    @classmethod
    def read(cls, path: Path, *, settings: Mapping[str, str], out: Path | None) -> Self:
        """Reads a pipeline file. `settings` take precedence over those of the file. Raises `SetupError` if
        the file is invalid, or a setting or a reference has no such name."""
        try:
            table = _PipelineTable.model_validate(tomllib.loads(path.read_text()))
        except ValidationError as error:
            raise SetupError(f"{path}: {validation_message(error.errors())}") from error
        except (OSError, ValueError, RecursionError) as error:  # not TOML, not UTF-8, or too deep
            raise SetupError(f"{path}: {error}") from error
        if unknown := settings.keys() - table.settings.keys():
            names = ", ".join(table.settings)
            raise SetupError(f"{path} has no setting {sorted(unknown)[0]!r} (--set): it has {names}")
        step_names = [step.name for step in table.steps]
        if len({*step_names, *table.settings}) < len(step_names) + len(table.settings):
            raise SetupError(f"{path}: a name is used twice among the settings and steps")
        folder = out or Path("runs/pipelines") / path.stem
        values = {name: str(value) for name, value in table.settings.items()} | dict(settings)
        setting_values, steps = dict(values), list[PipelineStep]()
        for number, step in enumerate(table.steps, start=1):
            values[step.name] = str(folder / f"{number}-{step.name}")
            steps.append(_resolved(step, number, values, steps, path))
        return cls(
            path.stem,
            table.description,
            folder,
            overrides=dict(settings),
            settings=setting_values,
            steps=tuple(steps),
        )


def _resolved(
    step: _StepTable, number: int, values: Mapping[str, str], earlier: Sequence[PipelineStep], path: Path
) -> PipelineStep:
    served = {"url", "served"} if step.serve else set()
    used: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in served:
            return match[0]
        if name not in values:
            raise SetupError(f"{path}, step {step.name!r}: there is no setting or earlier step {match[0]}")
        used.append(name)
        return values[name]

    def fill(text: str) -> str:
        return REFERENCE.sub(value, text)

    try:
        argv = tuple(fill(word) for word in shlex.split(step.run))
    except ValueError as error:
        raise SetupError(f"{path}, step {step.name!r}: {error} in {step.run!r}") from error
    serve_spec = fill(step.serve)
    reads = [fill(name) for name in step.reads]
    reads += [str(output) for source in earlier if source.name in used for output in source.outputs]
    folder = Path(values[step.name])
    outputs = tuple(folder / name for name in step.outputs) or (folder,)
    return PipelineStep(
        number,
        step.name,
        argv,
        reads=tuple(dict.fromkeys(reads)),
        folder=folder,
        outputs=outputs,
        serve=serve_spec,
        gpus=step.gpus,
    )
