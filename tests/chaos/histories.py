"""`python -m tests.chaos.histories FILE`: checks a history of calls offline (see `tests.chaos.history`).

What holds whatever Redis forgets: a call of a trainer that was replaced before is refused, and versions never
go back. If Redis forgot nothing, also: a position becomes one group, no entry is settled or archived twice,
and no more groups are settled than there were positions.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any


@dataclass
class Call:
    """A call: its invocation, and its end, if the process lived to see it."""

    name: str
    began: float
    given: dict[str, Any]
    ended: float = float("inf")
    event: str = "unknown"
    answer: Any = field(default=None)

    @property
    def entries(self) -> list[str]:
        return list(self.given["args"][0])

    @property
    def version(self) -> int:
        return int(self.given["args"][0])


def read(path: Path) -> list[Call]:
    """The calls of a history, in the order in which they ended."""
    calls: dict[tuple[str, int], Call] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        key = (row["process"], row["call"])
        if row["event"] == "invoke":
            calls[key] = Call(row["name"], row["s"], row)
        else:
            call = calls[key]
            call.ended, call.event, call.answer = row["s"], row["event"], row.get("answer")
    return sorted(calls.values(), key=lambda call: call.ended)


def violations(calls: Sequence[Call], *, forgetful: bool = False) -> list[str]:
    """What should not have happened. `forgetful`: Redis lost some of what it had been told."""
    found: list[str] = []
    for run in {call.given["run"] for call in calls}:
        own = [call for call in calls if call.given["run"] == run]
        found += [*_out_of_turn(own), *(() if forgetful else _effects(own))]
    return found


def _out_of_turn(calls: Sequence[Call]) -> Iterator[str]:
    """Calls that had to be refused, because of one that had ended before they began."""
    epochs = [call for call in calls if call.name == "take_over" and call.event == "ok"]
    versions = [call for call in calls if call.name == "publish_policy" and call.event == "ok"]
    for call in calls:
        if call.event != "ok" or call.name not in ("settle", "publish_policy"):
            continue
        epoch = max((c.answer for c in epochs if c.ended < call.began), default=0)
        if call.given["epoch"] < epoch:
            yield f"{call}: the trainer of epoch {epoch} had started before"
        number = max((v.version for v in versions if v.ended < call.began), default=0)
        if call.name == "publish_policy" and call.version < number:
            yield f"{call}: version {number} was published before"


def _effects(calls: Sequence[Call]) -> Iterator[str]:
    """Entries with two effects, and groups that come from nowhere."""
    published = [call for call in calls if call.name == "publish_group" and call.answer]
    yield from _twice("published", (call.given["entry_id"] for call in published))
    for name in ("settle", "archived"):
        whole = [call for call in calls if call.name == name and call.answer == len(call.entries)]
        yield from _twice(f"in a call of {name}", (entry for call in whole for entry in call.entries))
    # Also those of calls that published nothing: the reply to a first attempt may have been lost.
    positions = {call.given["entry_id"] for call in calls if call.name == "publish_group"}
    settled = sum(call.answer or 0 for call in calls if call.name == "settle")
    if settled > len(positions):
        yield f"{settled} groups were settled, of {len(positions)} positions"


def longest_pause_s(calls: Sequence[Call]) -> float:
    """The longest time between two published versions."""
    ends = [call.ended for call in calls if call.name == "publish_policy" and call.event == "ok"]
    return max((after - before for before, after in pairwise(ends)), default=0.0)


def _twice(what: str, entries: Iterator[str]) -> Iterator[str]:
    yield from (f"{entry} was {times} times {what}" for entry, times in Counter(entries).items() if times > 1)


def main(path: Path) -> int:
    calls = read(path)
    wrong = violations(calls)
    events = Counter(f"{call.name} {call.event}" for call in calls)
    print("\n".join([*(f"{name}: {times}" for name, times in sorted(events.items())), *wrong]))
    print(f"{len(calls)} calls, {len(wrong)} violations; longest pause {longest_pause_s(calls):.1f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
