"""Finds groups that cannot be trained on, so that such a group does not end the trainer at every restart.

The groups of a step are recorded in a file before it begins, because a process that runs out of memory may be
killed. After a failed step, each of its groups is tried alone, without changing the policy. Groups that fail
alone are at fault. Therefore no valid group is lost if the process is killed for other reasons.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rookery.files import replace_file
from rookery.trace import TraceGroup
from services.trainer.records.memory import is_out_of_memory

logger = logging.getLogger(__name__)

T = TypeVar("T")

FILE = "attempts.json"
MAX_ATTEMPTS = 3
"""After this many attempts that ended the process, a group is rejected. All but the first try it alone."""


class GroupsAtFault(Exception):
    """Some groups cannot be trained on. `reasons` has the reason by group id."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class Attempts:
    """Counts unfinished attempts by group id, in a file in the run's folder, until a step is committed."""

    def __init__(self, folder: Path, *, survives: bool = True) -> None:
        """`survives`: this process goes on after a failed step. Of several processes, a failure in one ends
        all, because they wait for each other's results."""
        self._path = folder / FILE
        self._survives = survives
        self._counts: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):  # a power cut may have damaged it
            self._counts = json.loads(self._path.read_bytes())

    def guard(self, step: Callable[..., T], groups: Sequence[TraceGroup], *, undo: Callable[[], None]) -> T:
        """Returns `step(groups)`. A step that fails is undone, and tried once more.

        `step([group], dry_run=True)` tries a group alone.

        Raises:
            GroupsAtFault: some of the groups fail alone too.
            ArithmeticError: the step fails twice, or each of several groups fails alone, so that the groups
                are not at fault.
            RuntimeError, MemoryError: the step fails twice for lack of memory, or for another reason.
        """
        failed = False
        while not (at_fault := self._at_fault(step, groups)):
            self._count(groups)
            try:
                return step(groups)
            except (ArithmeticError, RuntimeError, MemoryError) as error:
                if failed or not self._may_be_groups_fault(error):
                    raise
                logger.error("the step failed; its groups are now tried one by one: %s", error)
            failed = True
            undo()  # not inside `except`, which holds the step's tensors
        raise GroupsAtFault(at_fault)

    def committed(self) -> None:
        self._write({})

    def _at_fault(self, step: Callable[..., object], groups: Sequence[TraceGroup]) -> dict[str, str]:
        """Tries each group alone that was in an unfinished attempt, those with the fewest attempts first.
        Returns the reasons by group id for the groups that fail."""
        reasons: dict[str, str] = {}
        suspects = [group for group in groups if group.id in self._counts]
        for group in sorted(suspects, key=lambda group: self._counts[group.id]):
            if (count := self._counts[group.id]) >= MAX_ATTEMPTS:
                reasons[group.id] = f"group {group.id}: {count} steps on it ended the trainer"
                continue
            self._count([group])
            try:
                step([group], dry_run=True)
            except (ArithmeticError, RuntimeError, MemoryError) as error:
                if not self._may_be_groups_fault(error):
                    raise
                reasons[group.id] = f"group {group.id} alone: {error}"
            else:
                self._write({name: count for name, count in self._counts.items() if name != group.id})
        if len(groups) == len(reasons) > 1:
            self._write({})  # the next start, with the fault fixed, tries them again
            raise ArithmeticError(f"no group of the batch can be trained on: {'; '.join(reasons.values())}")
        return reasons

    def _may_be_groups_fault(self, error: BaseException) -> bool:
        """Whether the error may be due to the step's groups, and this process can continue."""
        return self._survives and (isinstance(error, ArithmeticError) or is_out_of_memory(error))

    def _count(self, groups: Sequence[TraceGroup]) -> None:
        self._write(self._counts | {group.id: self._counts.get(group.id, 0) + 1 for group in groups})

    def _write(self, counts: dict[str, int]) -> None:
        self._counts = counts
        replace_file(self._path, json.dumps(counts).encode())
