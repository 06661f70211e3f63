"""Reads preference pairs from Parquet or JSON lines, tokenises them, and splits off held-out pairs.

All pairs of a game are on the same side. A held-out position is not trained on in any other game either.
"""

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.errors import InvalidInput
from services.trainer.examples.chats import Chat, Messages, file_start, join_messages, tokenize
from services.trainer.examples.rows import TokenizedExample
from services.trainer.examples.survey import Survey

logger = logging.getLogger(__name__)

_NEEDED = ("prompt", "chosen", "rejected")
_USED = (*_NEEDED, "gap", "fen", "game_id", "origin", "phase")

_TOKENISED_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A pair as tokens, the chosen answer first. `position` and `game` are digests."""

    example: TokenizedExample
    position: bytes
    game: bytes
    origin: str
    phase: str


@dataclass(frozen=True, slots=True)
class PairExamples:
    """Pairs as an `ExampleSource`."""

    pairs: Sequence[TokenPair]

    @property
    def prompts(self) -> range:
        """Each pair has its own prompt: its answers share it already."""
        return range(len(self))

    def __len__(self) -> int:
        return len(self.pairs)

    def examples(self, numbers: Sequence[int]) -> list[TokenizedExample]:
        """Returns the examples with these numbers (see `ExampleSource`)."""
        return [self.pairs[number].example for number in numbers]


@dataclass(frozen=True, slots=True)
class PairSplit:
    """Pairs for training and held-out pairs, how many leaked from one to the other, and the survey of all."""

    train: list[TokenPair]
    held_out: list[TokenPair]
    leaking: int
    survey: Survey

    @property
    def counts(self) -> dict[str, int]:
        """The number of pairs in each set, and of those left out, by reason."""
        return {
            "train": len(self.train),
            "held_out": len(self.held_out),
            "left_out_leaking": self.leaking,
            "left_out_too_long": self.survey.left_out,
        }


def read_pairs(
    path: Path, tokenizer: Any, *, max_length: int, held_out: float, after_end: bool = False
) -> PairSplit:
    """Reads the pairs of a file and splits them. `after_end` is for `tokenize`. Raises `InvalidInput` if a
    row is not a pair, or one of the two sets is empty."""
    train: list[TokenPair] = []
    held_out_pairs: list[TokenPair] = []
    survey = Survey(max_length)
    for pair in _tokenised(path, tokenizer, survey, after_end=after_end):
        if int.from_bytes(pair.game, "big") / float(1 << 8 * len(pair.game)) < held_out:
            held_out_pairs.append(pair)
        else:
            train.append(pair)
    survey.check(path)
    held_out_positions = {pair.position for pair in held_out_pairs}
    clean = [pair for pair in train if pair.position not in held_out_positions]
    split = PairSplit(clean, held_out_pairs, leaking=len(train) - len(clean), survey=survey)
    logger.info("%s: %s", path, split.counts)
    if not clean or not held_out_pairs:
        raise InvalidInput(f"{path} gives {split.counts}: neither share may be empty")
    return split


def _tokenised(path: Path, tokenizer: Any, survey: Survey, *, after_end: bool) -> Iterator[TokenPair]:
    """Yields the pairs that fit, and counts all of them."""
    rows = _rows(path)
    while batch := list(islice(rows, _TOKENISED_AT_ONCE)):
        chosen = tokenize([Chat(row.chat("chosen")) for row in batch], tokenizer, after_end=after_end)
        rejected = tokenize([Chat(row.chat("rejected")) for row in batch], tokenizer, after_end=after_end)
        for row, better, worse in zip(batch, chosen, rejected, strict=True):
            answers = (better.answers[0], worse.answers[0])
            length = len(better.prompt_ids) + max(map(len, answers))
            answer = row.chat("chosen")[-1]["content"]
            if not survey.add(length, answer=answer, answer_tokens=len(answers[0])):
                continue
            fen = row.text("fen")
            position = _digest(" ".join(fen.split()[:4]) if fen else str(list(better.prompt_ids)))
            game = row.text("game_id")
            yield TokenPair(
                example=TokenizedExample(better.prompt_ids, answers, gap=row.gap),
                position=position,
                game=_digest(game) if game else position,
                origin=row.text("origin"),
                phase=row.text("phase"),
            )


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a file, unchecked; `where` names it in errors."""

    values: Mapping[str, Any]
    where: str

    def chat(self, name: str) -> Messages:
        """Returns the prompt with the answer in column `name`, or raises InvalidInput."""
        try:
            if missing := [column for column in _NEEDED if self.values.get(column) is None]:
                raise InvalidInput(f"it lacks {', '.join(missing)}: {str(self.values)[:200]!r}")
            return join_messages(self.values["prompt"], self.values[name])
        except InvalidInput as error:
            raise InvalidInput(f"{self.where}: not a preference pair: {error}") from error

    def text(self, name: str) -> str:
        """Returns a value as text, empty if missing. Ids may be numbers."""
        value = self.values.get(name)
        return "" if value is None else str(value)

    @property
    def gap(self) -> float:
        try:
            gap = float(self.values.get("gap") or 0.0)
        except (TypeError, ValueError):
            gap = math.nan
        if not math.isfinite(gap):
            raise InvalidInput(f"{self.where}: the gap is not a finite number: {self.values['gap']!r}")
        return gap


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


def _rows(path: Path) -> Iterator[_Row]:
    parquet = file_start(path, "pairs") == b"PAR1"
    yield from _parquet_rows(path) if parquet else _json_rows(path)


def _parquet_rows(path: Path) -> Iterator[_Row]:
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        if not set(_NEEDED) <= set(names):
            raise InvalidInput(f"{path} has columns {', '.join(names)}: it needs {', '.join(_NEEDED)}")
        number = 0
        for batch in file.iter_batches(256, columns=[name for name in _USED if name in names]):
            for row in batch.to_pylist():
                yield _Row(row, f"{path}, row {number}")
                number += 1
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} is not a Parquet file: {error}") from error


def _json_rows(path: Path) -> Iterator[_Row]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidInput(f"{path}:{number}: not JSON: {line[:120]!r}") from error
            if not isinstance(row, dict):
                raise InvalidInput(f"{path}:{number}: not a preference pair: {line[:120]!r}")
            yield _Row(row, f"{path}:{number}")
