"""A data set of annotations: Parquet, JSON lines and `analysis.json`, from parts that workers make."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from chess_datasets.annotate.compose import Annotation, Manner, compose
from chess_datasets.annotate.study import Effort, study
from chess_datasets.jobs import Searcher
from chess_datasets.store.datasets import Parts, write_manifest
from chess_datasets.store.folders import Folder, OutputFile
from chess_datasets.store.jsonl import jsonl_writer
from chess_datasets.store.parquet import Kind, record_writer
from commentary import Study
from rookery.errors import Unavailable
from rookery.prompt import mirrored_move, render
from rookery.trace import Position

PARQUET, LINES, CHATS = "annotations.parquet", "annotations.jsonl", "analysis.json"

ANNOTATIONS = Kind("annotations", Annotation, rows=1024)

_PATIENCE = 5
_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class AnnotationRecipe:
    """The settings that determine the annotations, besides the positions and the engine: `effort` sets the
    searches, `style` and `manner` the text."""

    style: str = "fen"
    manner: Manner = field(default_factory=Manner)
    effort: Effort = field(default_factory=Effort)

    async def annotate(self, position: Position, engines: Searcher) -> Annotation | None:
        """The annotation of one position; None when no text about it passes the check. Raises `InvalidInput`
        if the position is broken or its game over, or there is no such style; `Unavailable` if no engine
        answers."""
        prompt = render(position, style=self.style)
        last = position.last_moves[-1] if position.last_moves else None
        if last is not None and prompt.fen.split()[1] != position.fen.split()[1]:
            last = mirrored_move(last)
        studied = await self._study(prompt.fen, engines, last=last)
        return compose(studied, prompt, self.manner, id_=position.id)

    async def _study(self, fen: str, engines: Searcher, *, last: str | None) -> Study:
        """The engine's answers about the board that the prompt shows; a busy engine is asked again."""
        for attempt in range(_PATIENCE):
            try:
                return await study(fen, engines, self.effort, last=last)
            except Unavailable as error:
                await asyncio.sleep(error.retry_after_s or _BACKOFF_S * 2**attempt)
        return await study(fen, engines, self.effort, last=last)


def write_annotations(parts: Parts[Annotation], folder: Folder, *, terms: dict[str, Any]) -> dict[str, Any]:
    """Writes the annotations of all parts in three forms, and their manifest. Returns the manifest."""
    counts = sum((Counter(parts.counts(part)) for part in parts.done), Counter[str]())
    by: dict[str, Counter[str]] = {"voice": Counter(), "length": Counter()}
    claims = 0
    with ExitStack() as files:
        table = files.enter_context(record_writer(folder, PARQUET, ANNOTATIONS))
        lines = files.enter_context(jsonl_writer(folder, LINES))
        chats = files.enter_context(_writing_array(folder, CHATS))
        for annotation in chain.from_iterable(map(parts.read, sorted(parts.done))):
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
        "positions": counts["positions"],
        "without_text": counts["positions"] - counts["records"],
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
