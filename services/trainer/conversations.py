"""Chats from JSON lines or Parquet, and chats to token ids: context, and the answer that carries loss.

A JSONL file is indexed, never loaded; of a Parquet file the columns that matter are held as Arrow
holds them, as compactly as the file.
"""

import json
import logging
import mmap
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rookery.errors import InvalidInput
from services.trainer.fitting.layout import Example

logger = logging.getLogger(__name__)

Messages = list[dict[str, str]]


class Chats(Protocol):
    """Numbered conversations, each with the assistant's answer last."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Messages: ...


def open_chats(path: Path) -> Chats:
    """The conversations of a file, told by its first bytes.

    Raises:
        InvalidInput: it is missing, empty, or has no column of conversations.
    """
    if not path.is_file() or path.stat().st_size == 0:
        raise InvalidInput(f"no examples in {str(path)!r}: the file is missing or empty")
    with path.open("rb") as source:
        return ParquetChats(path) if source.read(4) == b"PAR1" else ChatFile(path)


class ChatFile:
    """A JSONL file of `{"messages": [...]}`; line number i is `file[i]`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as source:
            self._bytes = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = array("Q", _line_starts(self._bytes))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Messages:
        start = self._starts[index]
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : end if end >= 0 else len(self._bytes)]
        try:
            messages: Messages = json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{self.path}:{index + 1}: not a chat example: {line[:120]!r}") from error
        return _answered(messages, f"{self.path}:{index + 1}")


class ParquetChats:
    """A Parquet file: `messages`, or `prompt` beside `answer` (annotations, tasks) or `chosen` (pairs)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            names = pq.read_schema(path).names
            self._answer = next((name for name in ("messages", "answer", "chosen") if name in names), "")
            columns = [self._answer] if self._answer == "messages" else ["prompt", self._answer]
            if not set(columns) <= set(names):
                raise InvalidInput(
                    f"{path} has columns {', '.join(names)}: "
                    "messages, prompt and answer, or prompt and chosen are read here"
                )
            self._table = pq.read_table(path, columns=columns)
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"{path} is no Parquet file: {error}") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> Messages:
        (row,) = self._table.slice(index, 1).to_pylist()
        answer = row[self._answer]
        if self._answer == "messages":
            messages = answer
        else:
            said = answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}]
            messages = [*row["prompt"], *said]
        return _answered(messages, f"{self.path}, row {index}")


class ChatExamples:
    """Examples of conversations; what is longer than `max_length` is cut, and counted in `cut`."""

    def __init__(self, chats: Chats, tokenizer: Any, *, max_length: int) -> None:
        self._chats = chats
        self._tokenizer = tokenizer
        self._max_length = max_length
        self.cut = 0

    def __len__(self) -> int:
        return len(self._chats)

    def examples(self, numbers: Sequence[int]) -> list[Example]:
        """As `services.trainer.fitting.order.Source` wants it."""
        made = tokenize([self._chats[number] for number in numbers], self._tokenizer)
        cut = [shorten(example, self._max_length) for example in made]
        longer = sum(before is not after for before, after in zip(made, cut, strict=True))
        if longer and not self.cut:
            logger.warning("of %d examples %d exceed --max-length %d and are cut",
                           len(made), longer, self._max_length)  # fmt: skip
        self.cut += longer
        return cut


def tokenize(conversations: Sequence[Messages], tokenizer: Any) -> list[Example]:
    """Applies the model's chat template; the answer is what it adds to the prompt that asks for one.

    Prompt and answer are tokenised apart, as they are when the model generates.

    Raises:
        InvalidInput: the template does not render a conversation as its own prompt plus the answer,
            so nobody could say which tokens are the assistant's.
    """
    answers, prompts = [], []
    for messages in conversations:
        if len(messages) < 2:
            raise InvalidInput(f"nothing comes before the answer {messages[0]['content'][:80]!r}")
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        if not prompt or not text.startswith(prompt):
            raise InvalidInput(f"the chat template renders {prompt[-80:]!r}, not a prefix of {text[:200]!r}")
        answers.append(text[len(prompt) :])
        prompts.append(prompt)
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(answers, add_special_tokens=False)["input_ids"]
    return [Example(prompt, (answer,)) for prompt, answer in zip(prompt_ids, answer_ids, strict=True)]


def shorten(example: Example, length: int) -> Example:
    """The first `length` tokens of an example with one answer; at least one of them is the prompt's."""
    if example.length <= length:
        return example
    prompt = example.prompt_ids[:length]
    return Example(prompt, (example.answers[0][: length - len(prompt)],))


def _answered(messages: Messages, place: str) -> Messages:
    if not messages or messages[-1].get("role") != "assistant":
        raise InvalidInput(f"{place}: the last message is not the assistant's")
    return messages


def _line_starts(data: mmap.mmap) -> Iterator[int]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if data[start:end].strip():
            yield start
        start = end + 1
