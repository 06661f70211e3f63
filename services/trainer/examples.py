"""Chat examples from a JSONL file to token batches for supervised fine-tuning.

Loss falls on the assistant's last message alone: the user's tokens and the generation prompt are
context. The file is indexed, never loaded whole; order is a seeded permutation per epoch.
"""

import json
import mmap
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.errors import InvalidInput

_CHUNK = 2048
"""Examples tokenised at once and sorted by length, so that a batch pads little."""


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of one conversation; the first `prompt_length` carry no loss."""

    token_ids: list[int]
    prompt_length: int


class ChatFile:
    """A JSONL file of `{"messages": [...]}`; line number i is `file[i]`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file() or path.stat().st_size == 0:
            raise InvalidInput(f"no examples in {str(path)!r}: the file is missing or empty")
        with path.open("rb") as source:
            self._bytes = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        self._starts = array("Q", _line_starts(self._bytes))

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> list[dict[str, str]]:
        start = self._starts[index]
        end = self._bytes.find(b"\n", start)
        line = self._bytes[start : end if end >= 0 else len(self._bytes)]
        try:
            messages: list[dict[str, str]] = json.loads(line)["messages"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{self.path}:{index + 1}: not a chat example: {line[:120]!r}") from error
        if not messages or messages[-1].get("role") != "assistant":
            raise InvalidInput(f"{self.path}:{index + 1}: the last message is not the assistant's")
        return messages


def batches(
    file: ChatFile, tokenizer: Any, *, batch_size: int, max_length: int, seed: int, skip: int = 0
) -> Iterator[list[Example]]:
    """Endless batches of similar length: epoch after epoch, each in its own seeded order.

    `skip` passes over that many batches without tokenising them, to resume.
    """
    chunk_size = max(batch_size, _CHUNK // batch_size * batch_size)
    for epoch in _count():
        rng = random.Random(f"{seed}:{epoch}")
        order = list(range(len(file)))
        rng.shuffle(order)
        usable = len(order) - len(order) % batch_size or len(order)
        for start in range(0, usable, chunk_size):
            chunk = order[start : min(start + chunk_size, usable)]
            places = [range(i, min(i + batch_size, len(chunk))) for i in range(0, len(chunk), batch_size)]
            rng.shuffle(places)
            if skip >= len(places):
                skip -= len(places)
                continue
            examples = tokenize([file[i] for i in chunk], tokenizer, max_length=max_length)
            examples.sort(key=lambda example: len(example.token_ids))
            for place in places[skip:]:
                yield [examples[i] for i in place]
            skip = 0


def tokenize(conversations: list[list[dict[str, str]]], tokenizer: Any, *, max_length: int) -> list[Example]:
    """Applies the model's chat template; cuts at `max_length` tokens from the right.

    Raises:
        InvalidInput: the template does not render a conversation as its own prompt plus the answer,
            so nobody could say which tokens are the assistant's.
    """
    whole, prompts = [], []
    for messages in conversations:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        if not text.startswith(prompt):
            raise InvalidInput(f"the chat template renders {prompt[-80:]!r}, not a prefix of {text[:200]!r}")
        whole.append(text[len(prompt) :])
        prompts.append(prompt)
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    return [Example((p + a)[:max_length], len(p)) for p, a in zip(prompt_ids, answer_ids, strict=True)]


def _line_starts(data: mmap.mmap) -> Iterator[int]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        if data[start:end].strip():
            yield start
        start = end + 1


def _count() -> Iterator[int]:
    epoch = 0
    while True:
        yield epoch
        epoch += 1
