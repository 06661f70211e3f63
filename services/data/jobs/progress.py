"""Progress bars on stderr; nothing is printed if stderr is not a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars


class Progress:
    """One progress bar for each stage of a long command, on stderr."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begin(self, stage: str, *, unit: str, total: int | None = None) -> None:
        """Starts the next stage. Without `total`, the bar shows no end."""
        self._task = self._bars.add_task(stage, total=total, unit=unit)

    def advance(self, count: int) -> None:
        self._bars.advance(self._task, count)
