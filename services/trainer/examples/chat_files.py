"""Files of chats, JSON lines, JSON or Parquet, and the examples in them, tokenised on demand.

A JSONL file is indexed, not loaded. It is not memory-mapped either, because mapped pages count as memory of
the process. Of a Parquet file, only the needed columns are loaded, as a compact Arrow table.
"""

import json
import logging
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.errors import InvalidInput
from services.trainer.examples.chats import Chat, file_start, parse_chat, parse_completion, tokenize
from services.trainer.examples.rows import TokenizedExample
from services.trainer.examples.survey import Survey

logger = logging.getLogger(__name__)

MAX_TABLE_BYTES = 16 << 30
"""Most memory for the chats of a Parquet file: it can hold a thousand times as much as it has bytes."""

SAVED_SHARE = 0.2
"""Share of the tokens that sharing prompts must save, since examples then come in another order."""

_TOKENISED_AT_ONCE = 512

_LINE_EVERY = 20_000
"""Chats between log lines while a large file is measured."""


class Chats(Protocol):
    """Numbered conversations, each with the assistant's answer last."""

    path: Path

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Chat: ...


def open_chats(path: Path) -> Chats:
    """Opens the conversations of a file, whose format is recognised by its first bytes. Raises `InvalidInput`
    if it is missing, compressed, has no example, or has no column of conversations."""
    start = file_start(path, "examples")
    kind = ParquetChats if start == b"PAR1" else JsonChats if start.lstrip()[:1] == b"[" else JsonlChats
    chats: Chats = kind(path)
    if not len(chats):
        raise InvalidInput(f"no examples in {str(path)!r}: it has no rows")
    return chats


class JsonlChats:
    """A JSONL file, a chat on each line (see `_chat_of`). Blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._starts = array("Q", _line_starts(file))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Chat:
        with self.path.open("rb") as file:
            file.seek(self._starts[index])
            line = file.readline().rstrip(b"\n")
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{self._place(index)}: not a chat example: {line[:120]!r}") from error
        try:
            return _chat_of(row)
        except InvalidInput as error:
            raise InvalidInput(f"{self._place(index)}: {error}") from error

    def _place(self, index: int) -> str:
        with self.path.open("rb") as file:
            number = file.read(self._starts[index]).count(b"\n") + 1
        return f"{self.path}:{number}"


class JsonChats:
    """A JSON file with a list of conversations, such as `analysis.json`. The whole file is loaded. A
    conversation is a list of messages, or an object like a line of a JSONL file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._rows: list[Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise InvalidInput(f"{path} is not JSON: {error}") from error

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Chat:
        row = self._rows[index]
        try:
            return _chat_of(row if isinstance(row, Mapping) else {"messages": row})
        except InvalidInput as error:
            place = f"{self.path}, conversation {index + 1}"
            raise InvalidInput(f"{place}: not a chat example: {error}: {str(row)[:120]!r}") from error


class ParquetChats:
    """A Parquet file, a chat in each row (see `_chat_of`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            names = pq.read_schema(path).names
            soft = ["alternatives"] if "alternatives" in names else []
            self._table = _read_table(path, _columns(names) + soft)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{path} is not a Parquet file: {error}") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Chat:
        (row,) = self._table.slice(index, 1).to_pylist()
        try:
            return _chat_of(row)
        except InvalidInput as error:
            raise InvalidInput(f"{self.path}, row {index}: {error}") from error


def _read_table(path: Path, columns: list[str]) -> pa.Table:
    """The columns, read a few rows at a time: a dictionary makes many long values of a few bytes."""
    file, batches, size = pq.ParquetFile(path), [], 0
    for batch in file.iter_batches(256, columns=columns):
        size += batch.nbytes
        if size > MAX_TABLE_BYTES:
            raise InvalidInput(f"its chats have more than {MAX_TABLE_BYTES} bytes: split the file")
        batches.append(batch)
    return pa.Table.from_batches(batches).combine_chunks() if batches else file.schema_arrow.empty_table()


def _line_starts(file: BinaryIO) -> Iterator[int]:
    start = 0
    for line in file:
        if line.strip():
            yield start
        start += len(line)


class ChatExamples:
    """Examples of conversations, as an `ExampleSource`. Chats longer than `max_length` are left out.

    Every chat, or each of the first `limit`, is tokenised once at the start to find its length. So errors in
    the file are found before training. If computing each prompt once saves at least `SAVED_SHARE` of the
    tokens, and with `share_prompts`, examples of one prompt are neighbours; else they keep the file's order.
    """

    prompts: Sequence[int]

    def __init__(
        self,
        chats: Chats,
        tokenizer: Any,
        *,
        max_length: int,
        limit: int | None = None,
        share_prompts: bool = True,
    ) -> None:
        self._chats = chats
        self._tokenizer = tokenizer
        measured = min(len(chats), limit or len(chats))
        self._numbers, firsts = array("Q"), array("Q")
        self.survey = Survey(max_length)
        first_of = dict[bytes, int]()
        tokens = saved = 0
        for place, chat, example in self._measured(measured):
            answer, answer_tokens = chat.messages[-1]["content"], example.answer_tokens
            if not self.survey.add(example.length, answer=answer, answer_tokens=answer_tokens):
                continue
            digest = blake2b(array("i", example.prompt_ids).tobytes(), digest_size=8).digest()
            firsts.append(first_of.setdefault(digest, len(firsts)))
            tokens += example.length
            saved += len(example.prompt_ids) if firsts[-1] < len(firsts) - 1 else 0
            self._numbers.append(place)
        self.survey.check(chats.path)
        counts = f"{measured} examples in {chats.path}, of which {self.survey.left_out} do not fit"
        if not self._numbers:
            raise InvalidInput(f"{counts} into --max-length {max_length}: nothing is left to learn")
        if self.survey.left_out:
            logger.warning("%s into --max-length %d and are left out", counts, max_length)
        self.prompts = range(len(self))
        if share_prompts and saved >= SAVED_SHARE * tokens:
            order = sorted(self.prompts, key=firsts.__getitem__)
            self._numbers = array("Q", (self._numbers[number] for number in order))
            self.prompts = array("Q", (i for i, number in enumerate(order) if firsts[number] == number))
            logger.info(
                "%s: %d prompts for %d answers, computed once each: %.0f%% fewer tokens",
                chats.path, len(self.prompts), len(self), 100 * saved / tokens,
            )  # fmt: skip

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shares_prompts(self) -> bool:
        """Whether neighbours may have the same prompt, which `share_prompts` then joins."""
        return len(self.prompts) < len(self)

    def examples(self, numbers: Sequence[int]) -> list[TokenizedExample]:
        """Returns the examples with these numbers (see `ExampleSource`)."""
        return tokenize([self._chats[self._numbers[number]] for number in numbers], self._tokenizer)

    def _measured(self, count: int) -> Iterator[tuple[int, Chat, TokenizedExample]]:
        """Yields each chat of the file with its number and its tokens."""
        places = iter(range(count))
        while chunk := list(islice(places, _TOKENISED_AT_ONCE)):
            chats = [self._chats[place] for place in chunk]
            try:
                examples = tokenize(chats, self._tokenizer)
            except InvalidInput:
                for place, chat in zip(chunk, chats, strict=True):
                    self._check(place, chat)
                raise
            for place, chat, example in zip(chunk, chats, examples, strict=True):
                yield place, chat, example
                if (place + 1) % _LINE_EVERY == 0:
                    logger.info("measured %d of %d examples in %s", place + 1, count, self._chats.path)

    def _check(self, place: int, chat: Chat) -> None:
        """Raises `InvalidInput`, with the number of the chat, if it cannot be tokenised."""
        try:
            tokenize([chat], self._tokenizer)
        except InvalidInput as error:
            raise InvalidInput(f"{self._chats.path}, example {place + 1}: {error}") from error


def _columns(names: Collection[str]) -> list[str]:
    """The columns that make a chat. Raises `InvalidInput` if there are none."""
    if "messages" in names:
        return ["messages"]
    answer = next((name for name in ("answer", "chosen", "completion") if name in names), None)
    if answer is None or "prompt" not in names:
        raise InvalidInput(
            f"columns {', '.join(names)}: a chat has messages, or prompt and answer, chosen or completion"
        )
    return ["prompt", answer]


def _chat_of(row: Any) -> Chat:
    """The chat of `messages`; or of a `prompt` of messages with an `answer` (annotations, tasks), `chosen`
    (pairs) or `completion`, messages or the assistant's text; or of two plain texts, `prompt` and
    `completion`. `alternatives` are soft targets. Raises `InvalidInput` if it is malformed."""
    if not isinstance(row, Mapping) or not isinstance(row.get("alternatives"), list | None):
        raise InvalidInput(f"not a chat example: {str(row)[:120]!r}")
    columns = _columns(row)
    answer = row[columns[-1]]
    if columns[-1] == "completion" and not isinstance(answer, list):
        return parse_completion(row)
    if isinstance(answer, str) and len(columns) > 1:
        row = {**row, columns[-1]: [{"role": "assistant", "content": answer}]}
    return parse_chat(row, *columns)
