"""Preference pairs from Parquet or JSON lines, tokenised, in two shares that have nothing in common.

A game is held out as a whole, and a position that is held out is not trained on in any other game.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.errors import InvalidInput
from services.trainer.conversations import Messages, tokenize
from services.trainer.fitting.layout import Example

logger = logging.getLogger(__name__)

_NEEDED = ("prompt", "chosen", "rejected")
_USED = (*_NEEDED, "gap", "fen", "game_id", "origin", "phase")

_TOKENISED_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A pair as tokens, the chosen answer first; `place` is its position, `game` held out whole."""

    example: Example
    place: bytes
    game: bytes
    origin: str
    phase: str


@dataclass(frozen=True, slots=True)
class PairExamples:
    """Pairs as a `Source`."""

    pairs: Sequence[TokenPair]

    def __len__(self) -> int:
        return len(self.pairs)

    def examples(self, numbers: Sequence[int]) -> list[Example]:
        """As `services.trainer.fitting.order.Source` wants it."""
        return [self.pairs[number].example for number in numbers]


@dataclass(frozen=True, slots=True)
class Shares:
    """Pairs to learn from and pairs to be judged by, and what belongs to neither."""

    train: list[TokenPair]
    held_out: list[TokenPair]
    leaking: int
    too_long: int

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs went where."""
        return {
            "train": len(self.train),
            "held_out": len(self.held_out),
            "left_out_leaking": self.leaking,
            "left_out_too_long": self.too_long,
        }


def read_shares(path: Path, tokenizer: Any, *, max_length: int, held_out: float) -> Shares:
    """The pairs of a file, split.

    Raises:
        InvalidInput: a row is no pair, or a share is empty.
    """
    train: list[TokenPair] = []
    kept: list[TokenPair] = []
    too_long = 0
    for pair in _tokenised(path, tokenizer):
        if len(pair.example.prompt_ids) + max(map(len, pair.example.answers)) > max_length:
            too_long += 1
        elif _fraction(pair.game) < held_out:
            kept.append(pair)
        else:
            train.append(pair)
    exam = {pair.place for pair in kept}
    clean = [pair for pair in train if pair.place not in exam]
    shares = Shares(clean, kept, leaking=len(train) - len(clean), too_long=too_long)
    logger.info("%s: %s", path, shares.counts)
    if not clean or not kept:
        raise InvalidInput(f"{path} gives {shares.counts}: neither share may be empty")
    return shares


def _fraction(key: bytes) -> float:
    return int.from_bytes(key, "big") / float(1 << 8 * len(key))


def _tokenised(path: Path, tokenizer: Any) -> Iterator[TokenPair]:
    rows = _rows(path)
    while some := list(islice(rows, _TOKENISED_AT_ONCE)):
        chosen = tokenize([_chat(row, "chosen", path) for row in some], tokenizer)
        rejected = tokenize([_chat(row, "rejected", path) for row in some], tokenizer)
        for row, better, worse in zip(some, chosen, rejected, strict=True):
            answers = (better.answers[0], worse.answers[0])
            place = _digest(" ".join(row["fen"].split()[:4]) if row.get("fen") else str(better.prompt_ids))
            yield TokenPair(
                example=Example(better.prompt_ids, answers, gap=float(row.get("gap") or 0.0)),
                place=place,
                game=_digest(row["game_id"]) if row.get("game_id") else place,
                origin=str(row.get("origin") or ""),
                phase=str(row.get("phase") or ""),
            )


def _chat(row: Mapping[str, Any], name: str, path: Path) -> Messages:
    try:
        messages: Messages = [*row["prompt"], *row[name]]
        roles = [message["role"] for message in messages]
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{path}: no preference pair: {str(row)[:200]!r}") from error
    if roles[-1:] != ["assistant"]:
        raise InvalidInput(f"{path}: {name} is not the assistant's: {str(row[name])[:200]!r}")
    return messages


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file() or path.stat().st_size == 0:
        raise InvalidInput(f"no pairs in {str(path)!r}: the file is missing or empty")
    with path.open("rb") as source:
        parquet = source.read(4) == b"PAR1"
    yield from _parquet_rows(path) if parquet else _json_rows(path)


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"{path} is no Parquet file: {error}") from error
    names = file.schema_arrow.names
    if not set(_NEEDED) <= set(names):
        raise InvalidInput(f"{path} has columns {', '.join(names)}: no preference pairs")
    for batch in file.iter_batches(columns=[name for name in _USED if name in names]):
        yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidInput(f"{path}:{number}: no JSON: {line[:120]!r}") from error
            if not isinstance(row, dict):
                raise InvalidInput(f"{path}:{number}: no preference pair: {line[:120]!r}")
            yield row
