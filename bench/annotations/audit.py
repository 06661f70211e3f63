"""Annotates many positions and counts what the reader finds in the first draft of each.

The audit measures the writer and not the filter: no text is written again. Each position leaves a line in
`checked.jsonl`; an audit that was stopped goes on behind the last whole line.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bench.annotations.mutations import mutations
from chess_datasets.annotate.compose import Manner
from chess_datasets.annotate.study import Effort, study
from chess_datasets.jobs import Searcher
from commentary import Study, read
from commentary.writing.text import draft

LOG = "checked.jsonl"


@dataclass(slots=True)
class Tally:
    """Sums over all positions; `caught` and `planted` by the kind of falsehood."""

    texts: int = 0
    sound: int = 0
    sentences: int = 0
    talk: int = 0
    claims: int = 0
    false: int = 0
    unread: int = 0
    planted: Counter[str] = field(default_factory=Counter)
    caught: Counter[str] = field(default_factory=Counter)

    def add(self, line: dict[str, Any]) -> None:
        self.texts += 1
        self.sound += not line["false"] and not line["unread"]
        for name in ("sentences", "talk", "claims"):
            setattr(self, name, getattr(self, name) + line[name])
        self.false += len(line["false"])
        self.unread += len(line["unread"])
        self.planted.update(line["planted"])
        self.caught.update(line["caught"])

    def summary(self) -> dict[str, Any]:
        caught = {kind: round(self.caught[kind] / n, 4) for kind, n in sorted(self.planted.items())}
        return {
            "texts": self.texts,
            "sound_texts": self.sound,
            "sentences": self.sentences,
            "sentences_without_claim": self.talk,
            "claims": self.claims,
            "false_claims": self.false,
            "false_per_10000": round(10_000 * self.false / max(1, self.claims), 3),
            "unread_sentences": self.unread,
            "planted": self.planted.total(),
            "caught": round(self.caught.total() / max(1, self.planted.total()), 4),
            "caught_by_kind": caught,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit that writes to `folder`. With `plants`, falsehoods are planted in every tenth text."""

    folder: Path
    engines: Searcher
    manner: Manner = field(default_factory=Manner)
    effort: Effort = field(default_factory=Effort)
    plants: bool = True
    writers: Executor | None = None

    async def run(
        self,
        positions: Iterable[tuple[str, str | None]],
        *,
        ahead: int,
        advance: Callable[[int], None] = lambda count: None,
    ) -> Tally:
        """Examines the positions that have no line yet, `ahead` of them at once. Returns the tally of all. A
        position is a FEN and the move that led to it, if that is known."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tally, done = self._resume()
        advance(done)
        waiting = iter(list(positions)[done:])
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            while batch := list(islice(waiting, ahead)):
                numbered = enumerate(batch, start=tally.texts)
                for line in await asyncio.gather(
                    *(self._line(number, fen, last) for number, (fen, last) in numbered)
                ):
                    log.write(json.dumps(line) + "\n")
                    tally.add(line)
                log.flush()
                advance(len(batch))
        return tally

    def _resume(self) -> tuple[Tally, int]:
        tally = Tally()
        for line in _whole_lines(self.folder / LOG):
            tally.add(line)
        return tally, tally.texts

    async def _line(self, number: int, fen: str, last: str | None) -> dict[str, Any]:
        position_study = await study(fen, self.engines, self.effort, last=last)
        arguments = (position_study, self.manner, f"check:{number}", self.plants and number % 10 == 0)
        if self.writers is None:
            return examine(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self.writers, examine, *arguments)


def examine(position_study: Study, manner: Manner, id_: str, plants: bool) -> dict[str, Any]:
    """The line of one position: its first draft, and what the reader finds in it."""
    voice, length = manner.drawn(id_)
    seed = f"{manner.seed}:{id_}:0"
    text = draft(position_study, voice=voice, length=length, seed=seed, box=manner.box)
    reading, answer = text.reading, str(text)
    planted: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    for lie in mutations(answer, position_study, random.Random(id_)) if plants else ():
        planted[lie.kind] += 1
        caught[lie.kind] += not read(position_study, lie.text).sound
    return {
        "id": id_,
        "fen": position_study.fen,
        "text": answer,
        "sentences": len(reading.sentences),
        "talk": sum(sentence.status == "talk" for sentence in reading.sentences),
        "claims": len(reading.claims),
        "false": [[claim.concept, claim.words] for claim in reading.claims if not claim.true],
        "unread": [sentence.words for sentence in reading.unread],
        "planted": dict(planted),
        "caught": dict(caught),
    }


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file. An incomplete last line is cut off, so its position is examined again."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    yield from (json.loads(line) for line in whole.splitlines())
