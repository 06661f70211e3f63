"""Every kind of record that the data service stores in Parquet: its name, dataclass and version.

The columns are derived from the dataclasses (`services.data.store.columns`). `inspect` and the readers look
up a kind here by the name in a file's metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Self

from rookery.trace import TRACE_VERSION, Position, TraceGroup
from services.data.annotate.annotation import Annotation
from services.data.pairs.preference import Pair
from services.data.store.tables import Kind
from services.data.tasks.task import Example
from services.data.traces.rescore import Rescored


@dataclass(frozen=True, slots=True)
class ArchivedGroup(TraceGroup):
    """A group as stored in the archive. `entry` is its id in the stream, unique within the run."""

    entry: str = ""

    @classmethod
    def of(cls, group: TraceGroup, *, entry: str) -> Self:
        return cls(**{field.name: getattr(group, field.name) for field in fields(group)}, entry=entry)

    @property
    def group(self) -> TraceGroup:
        """The group as it was published."""
        return TraceGroup(**{field.name: getattr(self, field.name) for field in fields(TraceGroup)})


POSITIONS = Kind("positions", Position)
GROUPS = Kind("groups", TraceGroup, version=TRACE_VERSION, rows=32)
ARCHIVED = Kind("groups", ArchivedGroup, version=TRACE_VERSION, rows=32)
"""The same kind with one more column. A reader of groups can read these files, too."""

PAIRS = Kind("pairs", Pair)
RESCORED = Kind("rescored", Rescored)
EXAMPLES = Kind("examples", Example)

ANNOTATIONS = Kind("annotations", Annotation, rows=1024)

KINDS: Mapping[str, Kind[Any]] = MappingProxyType(
    {kind.name: kind for kind in (POSITIONS, GROUPS, PAIRS, RESCORED, EXAMPLES, ANNOTATIONS)}
)
