"""A data set of annotations: made in parts that survive a stop, then Parquet, JSON lines and `analysis.json`.

Positions are annotated in order, so the parts are finished in order too, and the last one ends where there
are enough. No position is annotated twice, mirrored ones included.
"""

import json
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rookery.trace import Position
from services.data.annotate import Annotation, Annotator
from services.data.positions.distinct import position_key
from services.data.positions.numbered import PART_SIZE, NumberedPositions, new_positions
from services.data.store.datasets import Parts, write_manifest
from services.data.store.folders import Folder, OutputFile
from services.data.store.jsonl import jsonl_writer
from services.data.store.parquet import Kind, record_writer

PARQUET, LINES, CHATS = "annotations.parquet", "annotations.jsonl", "analysis.json"

ANNOTATIONS = Kind("annotations", Annotation, rows=1024)


@dataclass
class Annotating:
    """One data set in the making; what an earlier run finished is taken over."""

    supply: NumberedPositions
    annotator: Annotator
    parts: Parts[Annotation]
    wanted: int
    made: int = 0
    _seen: set[int] = field(default_factory=set)
    _numbers: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for part in sorted(self.parts.done):
            for annotation in self.parts.read(part):
                self.made += 1
                self._seen.add(position_key(annotation.fen))

    async def run(self, *, ahead: int, advance: Callable[[int], None]) -> None:
        """Annotates until there are enough, or no more positions; `advance` hears of each annotation.

        Raises:
            Unavailable: the engines are away; a later run goes on from here.
        """
        part, held, counts = -1, list[Annotation](), Counter[str]()
        async with aclosing(self._annotated(ahead)) as results:
            async for number, annotation in results:
                if number // PART_SIZE != part and part >= 0:
                    self.parts.write(part, held, counts=counts)
                    held, counts = [], Counter()
                part = number // PART_SIZE
                counts["positions"] += 1
                if annotation is None:
                    counts["without_text"] += 1
                    continue
                held.append(annotation)
                self.made += 1
                advance(1)
                if self.made >= self.wanted:
                    break
        if part >= 0:
            self.parts.write(part, held, counts=counts)

    def annotations(self) -> Iterator[Annotation]:
        """Those that are wanted, in the order of their positions."""
        return islice((one for part in sorted(self.parts.done) for one in self.parts.read(part)), self.wanted)

    def counts(self) -> Counter[str]:
        """What became of the positions."""
        total: Counter[str] = Counter()
        for part in self.parts.done:
            total.update(self.parts.counts(part))
        return total

    async def _annotated(self, ahead: int) -> AsyncGenerator[tuple[int, Annotation | None]]:
        if self.made >= self.wanted:
            return
        results = self.annotator.annotate_all(self._positions(), ahead=ahead)
        async with aclosing(results) as annotated:
            async for _, annotation in annotated:
                yield self._numbers.popleft(), annotation

    def _positions(self) -> Iterator[Position]:
        """Those of the parts that are missing, without the ones that came before; remembers their numbers."""
        for number, position in new_positions(self.supply, done=self.parts.done, seen=self._seen):
            self._numbers.append(number)
            yield position


def write_annotations(annotating: Annotating, folder: Folder, *, terms: dict[str, Any]) -> dict[str, Any]:
    """Writes what was made in three forms; the manifest, which stands beside them."""
    by: dict[str, Counter[str]] = {"voice": Counter(), "length": Counter()}
    claims = 0
    with ExitStack() as files:
        table = files.enter_context(record_writer(folder, PARQUET, ANNOTATIONS))
        lines = files.enter_context(jsonl_writer(folder, LINES))
        chats = files.enter_context(_writing_array(folder, CHATS))
        for annotation in annotating.annotations():
            table.add(annotation)
            lines.add(annotation.line)
            chats.add(annotation.messages)
            claims += annotation.claims
            for name, counter in by.items():
                counter[getattr(annotation, name)] += 1
    facts = {
        "annotations": table.rows,
        "claims": claims,
        **{f"by_{name}": dict(sorted(counter.items())) for name, counter in by.items()},
        **dict(annotating.counts()),
    }
    written = [table.written, lines.written, chats.draft.written]
    return write_manifest(folder, ANNOTATIONS.name, written, terms=terms, facts=facts)


@dataclass
class _Array:
    """A JSON array being written, an item a line."""

    draft: OutputFile
    between: bytes = b"[\n"

    def add(self, item: Any) -> None:
        self.draft.write(self.between + json.dumps(item, ensure_ascii=False).encode())
        self.between = b",\n"


@contextmanager
def _writing_array(folder: Folder, name: str) -> Iterator[_Array]:
    with folder.write(name) as draft:
        array = _Array(draft)
        yield array
        draft.write(b"\n]\n" if array.between != b"[\n" else b"[]\n")
