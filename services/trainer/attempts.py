"""Steps begun and not finished: a group that cannot be trained on must not stop the run at every start.

A step's groups are written down before it begins: a process that runs out of memory may not live to say so.
After a step that failed, each of its groups is tried alone, without moving the policy; the one that fails
alone is at fault. So kills from outside cost no healthy group its place.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rookery.trace import TraceGroup
from services.trainer.learner import Learner
from services.trainer.records.memory import is_out_of_memory
from services.trainer.step import StepResult
from services.trainer.trainee import Leader
from services.trainer.versions.commits import Commit

logger = logging.getLogger(__name__)

FILE = "attempts.json"
MOST = 3
"""Attempts at a group that ended the process, all but the first alone, before it is given up."""


class GroupsAtFault(Exception):
    """`reasons` by group id: no step can be made on these groups."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class Attempts:
    """Counts by group id, kept in the run's folder until a step is committed."""

    def __init__(self, folder: Path, leader: Leader) -> None:
        self._path = folder / FILE
        self._leader = leader
        # Several processes wait for each other: a failure in one ends them all.
        self._survives = leader.own.world.size == 1
        self._counts: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):  # a power cut may have torn it
            self._counts = json.loads(self._path.read_bytes())

    def learn(
        self, groups: Sequence[TraceGroup], *, commit: Commit, dropped_zero_variance: int
    ) -> tuple[StepResult, Learner]:
        """`Leader.learn` from the version of `commit`; a step that fails is made once more.

        Raises:
            GroupsAtFault: some of the groups fail alone, too.
            ArithmeticError: all of several groups do, so the fault is not theirs, or the step fails twice.
            RuntimeError, MemoryError: the same, for want of memory.
        """
        step, learner = commit.version.number, Learner.of(commit.learner)

        def alone(group: TraceGroup) -> None:
            self._leader.learn([group], step=step, learner=learner, dropped_zero_variance=0, rehearsal=True)

        failed = False
        while not (at_fault := self._at_fault(groups, alone)):
            self._begin(groups)
            try:
                return self._leader.learn(
                    groups, step=step, learner=learner, dropped_zero_variance=dropped_zero_variance
                )
            except (ArithmeticError, RuntimeError, MemoryError) as error:
                if failed or not self._is_of_groups(error):
                    raise
                logger.error(
                    "the step after %s failed, so its groups are tried alone: %s", commit.folder, error
                )
            failed = True
            self._leader.own.load(commit.folder)  # not inside `except`, which holds the step's tensors
        raise GroupsAtFault(at_fault)

    def committed(self) -> None:
        """Forgets all: the run goes on."""
        self._write({})

    def _at_fault(self, groups: Sequence[TraceGroup], alone: Callable[[TraceGroup], None]) -> dict[str, str]:
        """Tries those groups alone that were in an unfinished attempt, the least suspect first."""
        reasons: dict[str, str] = {}
        suspects = [group for group in groups if group.id in self._counts]
        for group in sorted(suspects, key=lambda group: self._counts[group.id]):
            if (count := self._counts[group.id]) >= MOST:
                reasons[group.id] = f"group {group.id}: {count} steps on it ended the trainer"
                continue
            self._begin([group])
            try:
                alone(group)
            except (ArithmeticError, RuntimeError, MemoryError) as error:
                if not self._is_of_groups(error):
                    raise
                reasons[group.id] = f"group {group.id} alone: {error}"
            else:
                self._write({name: count for name, count in self._counts.items() if name != group.id})
        if len(groups) == len(reasons) > 1:
            self._write({})  # the next start, with the fault mended, tries them anew
            raise ArithmeticError(f"no group of the batch can be trained on: {'; '.join(reasons.values())}")
        return reasons

    def _is_of_groups(self, error: BaseException) -> bool:
        """Whether a step failed over what it was made of, and this process can go on."""
        return self._survives and (isinstance(error, ArithmeticError) or is_out_of_memory(error))

    def _begin(self, groups: Sequence[TraceGroup]) -> None:
        self._write(self._counts | {group.id: self._counts.get(group.id, 0) + 1 for group in groups})

    def _write(self, counts: dict[str, int]) -> None:
        self._counts = counts
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(counts))
        temporary.replace(self._path)
