"""Output of a run on examples: metrics.jsonl, a progress bar, and log lines."""

import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rookery.errors import InvalidInput
from rookery.plots.steps import METRICS_FILE

logger = logging.getLogger(__name__)

_LINE_EVERY = 50
"""Steps between log lines if no terminal shows the progress bar."""


class Log:
    """Appends rows to `metrics.jsonl`. Rows after step `start`, from a killed run, are deleted first."""

    def __init__(self, name: str, out: Path, *, start: int, steps: int) -> None:
        self._steps = steps
        path = out / METRICS_FILE
        _cut(path, start)
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, TimeRemainingColumn())
        self._task = self._progress.add_task("", total=steps, completed=start)
        self._file = path.open("a", buffering=1)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._file)
        self._stack.enter_context(self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Writes the row of one step and advances the progress bar."""
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._progress.update(self._task, advance=1, description=f"loss {row['loss']:.3f}")
        evaluated = {name: value for name, value in row.items() if name.startswith("eval_")}
        if evaluated or (not self._progress.console.is_terminal and row["step"] % _LINE_EVERY == 0):
            said = ", ".join(f"{name} {value:.4f}" for name, value in evaluated.items())
            logger.info("step %d of %d: loss %.4f %s", row["step"], self._steps, row["loss"], said)


def _cut(path: Path, start: int) -> None:
    if not path.exists():
        return
    *whole, last = path.read_text().split("\n")  # after a kill the last line may be incomplete
    del last
    kept = [line for number, line in enumerate(whole, start=1) if _step(line, f"{path}:{number}") <= start]
    path.write_text("".join(f"{line}\n" for line in kept))


def _step(line: str, place: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidInput(f"{place}: not the row of a step: {line[:120]!r}") from error
