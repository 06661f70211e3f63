"""Turns chats and plain texts into examples: the context, the answer that carries loss, and soft targets for
parts of it.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from rookery.alternatives import Alternatives
from rookery.errors import InvalidInput
from services.trainer.examples.rows import SoftTargets, TokenizedExample

Messages = list[dict[str, str]]

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
)
"""The chat template for plain texts, and for models without one: the texts one after another, with an EOS
token after each answer."""

_MARK = "\ue000"
"""A private character, as an answer after which a template writes what it writes after each."""


_COMPRESSED = (b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"BZh", b"\xfd7zX")
"""The first bytes of zstd, gzip, bzip2 and xz."""


def file_start(path: Path, what: str) -> bytes:
    """The first bytes of a file of `what`. Raises `InvalidInput` if it is missing, empty or compressed."""
    if not path.is_file() or path.stat().st_size == 0:
        raise InvalidInput(f"no {what} in {str(path)!r}: the file is missing or empty")
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(_COMPRESSED):
        raise InvalidInput(f"{str(path)!r} is compressed: decompress it first")
    return start


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation with the assistant's answer last, and soft targets for parts of that answer. If it is
    `plain`, it is a text of two messages without a chat template: a prompt and its completion."""

    messages: Messages
    alternatives: Sequence[Alternatives] = ()
    plain: bool = False


def parse_chat(row: Mapping[str, Any], *columns: str) -> Chat:
    """Builds a chat from the messages of these columns and from `alternatives`, if the row has them.
    Raises `InvalidInput` if the messages or alternatives are malformed, or the last message is not the
    assistant's."""
    messages = join_messages(*(row[name] for name in columns))
    return Chat(messages, [Alternatives.of(value) for value in row.get("alternatives") or ()])


def parse_completion(row: Mapping[str, Any]) -> Chat:
    """Builds a plain chat from the texts `prompt` and `completion`, as TRL's `SFTTrainer` names them. Raises
    `InvalidInput` if one of them is not text."""
    for name in ("prompt", "completion"):
        if not _is_text(row.get(name)):
            raise InvalidInput(f"{name} is not text: {str(row.get(name))[:120]!r}")
    texts = {"user": row["prompt"], "assistant": row["completion"]}
    return Chat([{"role": role, "content": text} for role, text in texts.items()], plain=True)


def join_messages(*parts: Any) -> Messages:
    """Joins lists of messages, such as a prompt's and an answer's, into one chat with the answer last. Raises
    `InvalidInput` if a part is not a list of messages (a prompt may be plain text, for example), or the last
    message is not the assistant's."""
    chat: Messages = []
    for part in parts:
        if not isinstance(part, list):
            raise InvalidInput(f"not a list of messages: {str(part)[:120]!r}")
        chat += part
    for message in chat:
        if not isinstance(message, Mapping) or not all(
            _is_text(message.get(name)) for name in ("role", "content")
        ):
            raise InvalidInput(f"not a message of role and content: {str(message)[:120]!r}")
    if not chat or chat[-1]["role"] != "assistant":
        raise InvalidInput(f"the last message is not the assistant's: {str(chat[-1:])[:120]!r}")
    return chat


def _is_text(value: Any) -> bool:
    """Whether `value` is a string without lone surrogates, which JSON allows and tokenizers reject."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def tokenize(chats: Sequence[Chat], tokenizer: Any, *, after_end: bool = False) -> list[TokenizedExample]:
    """Applies the model's chat template, to plain chats none: the texts as they are, and an EOS token at the
    end. The answer is the text after the generation prompt, up to its end token.

    What a template writes after that token, such as a line break or the next prompt, is left out: generation
    has stopped. `after_end` keeps it. Reasoning that a template strips from answers is learned all the same.

    Prompt and answer are tokenised separately, as they are when the model generates. A plain prompt gets the
    tokens that the tokenizer puts before every text, such as Llama's BOS; a chat template writes its own.

    Raises:
        InvalidInput: a chat has no prompt; the template rejects it, or does not render it as its prompt plus
            the answer, so that the assistant's tokens are unknown; or alternatives do not fit the tokens.
    """
    ends = tuple(token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    rendered = [_render(chat, tokenizer) for chat in chats]
    answers = [answer + (end if after_end else _until_end(end, ends)) for _, answer, end in rendered]
    prompt_ids = dict[int, list[int]]()
    for is_plain in (False, True):
        numbers = [number for number, chat in enumerate(chats) if chat.plain is is_plain]
        if prompts := [rendered[number][0] for number in numbers]:
            tokenized = tokenizer(prompts, add_special_tokens=is_plain)["input_ids"]
            prompt_ids |= zip(numbers, tokenized, strict=True)
    soft = any(chat.alternatives for chat in chats)
    tokens = tokenizer(answers, add_special_tokens=False, return_offsets_mapping=soft)
    spans = [
        [
            _whole_tokens(span, chat.messages[-1]["content"], answers[i], tokens["offset_mapping"][i])
            for span in chat.alternatives
        ]
        for i, chat in enumerate(chats)
    ]
    texts = list({text for widened in spans for span in widened for text in span.texts})
    ids_of = dict(zip(texts, _ids_within(texts, tokenizer), strict=True)) if soft else {}
    examples = [
        TokenizedExample(array("i", prompt_ids[number]), (array("i", answer),))
        for number, answer in enumerate(tokens["input_ids"])
    ]
    for i, chat in enumerate(chats):
        if chat.alternatives:
            ids = tokens["input_ids"][i]
            distributions = token_distributions(
                spans[i], answers[i], ids=ids, offsets=tokens["offset_mapping"][i], ids_of=ids_of
            )
            examples[i] = replace(examples[i], soft_targets=(SoftTargets.of(ids, distributions),))
    return examples


def _render(chat: Chat, tokenizer: Any) -> tuple[str, str, str]:
    """Returns the texts of the prompt, with the generation prompt, of the answer, and of all that follows.

    Raises:
        InvalidInput: see `tokenize`.
    """
    messages, content = chat.messages, chat.messages[-1]["content"]
    if len(messages) < 2:
        raise InvalidInput(f"nothing comes before the answer {content[:80]!r}")
    template = PLAIN_TEMPLATE if chat.plain else None
    render = partial(tokenizer.apply_chat_template, chat_template=template, tokenize=False)
    try:
        text = render(messages)
        prompt = render(messages[:-1], add_generation_prompt=True)
        end = render([*messages[:-1], {**messages[-1], "content": _MARK}]).rpartition(_MARK)[2]
    except TemplateError as error:
        raise InvalidInput(f"the chat template rejects {str(messages)[:200]!r}: {error}") from error
    said = text.removesuffix(end)
    thoughts, _, final = content.rpartition("</think>")
    if final.strip() and _dense(thoughts.removeprefix("<think>")) not in _dense(said):
        _, stated, space = said.rpartition(final.strip())
        if prompt and stated:  # DeepSeek-R1's template, for example, strips the reasoning
            opening = prompt[prompt.rfind("<think>") :] if prompt.rstrip().endswith("<think>") else ""
            return prompt, content.removeprefix(opening).removeprefix(opening.strip()).rstrip() + space, end
    if not prompt or not said.startswith(prompt):
        raise InvalidInput(f"the chat template renders {prompt[-80:]!r}, not a prefix of {text[:200]!r}")
    return prompt, said[len(prompt) :], end


def _dense(text: str) -> str:
    """Returns `text` without white space, which templates change at the ends of reasoning and answer."""
    return "".join(text.split())


def _until_end(rest: str, ends: Sequence[str]) -> str:
    """Returns what follows an answer up to the first of the special tokens `ends`."""
    stops = [rest.index(end) + len(end) for end in ends if end in rest]
    return rest[: min(stops)] if stops else rest


def _ids_within(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Returns the token ids of texts that stand within an answer. Tokenizers of SentencePiece put a space
    before a text that is alone. After a line break, they do not."""
    alone, after, line_break = tokenizer(["e", "\ne", "\n"], add_special_tokens=False)["input_ids"]
    if after[-len(alone) :] == alone:
        return list(tokenizer(list(texts), add_special_tokens=False)["input_ids"])
    broken = tokenizer([f"\n{text}" for text in texts], add_special_tokens=False)["input_ids"]
    return [ids[len(line_break) :] for ids in broken]


def _place_in(answer: str, content: str, start: int, end: int) -> tuple[int, int]:
    """Returns the place in `answer` of the characters `start` to `end` of `content`; (0, 0) if it has none.
    The template may have changed white space, and the prompt may have the mark that opens the reasoning."""
    if (shift := answer.find(content)) >= 0:
        return start + shift, end + shift
    places = [place for place, character in enumerate(answer) if not character.isspace()]
    for opening in ("", "<think>"):
        body, skipped = content.removeprefix(opening), len(opening)
        shift = _dense(answer).find(_dense(body))
        if shift >= 0 and content.startswith(opening) and start >= skipped and content[start:end].strip():
            first = shift + len(_dense(content[skipped:start]))
            return places[first], places[first + len(_dense(content[start:end])) - 1] + 1
    return 0, 0


def _whole_tokens(
    span: Alternatives, content: str, answer: str, offsets: Sequence[tuple[int, int]]
) -> Alternatives:
    """Returns a span of `content` as one of `answer`, what the chat template makes of it.

    A token may begin with the space before the span, or end after it: all texts then have these characters.
    Raises `InvalidInput` if the span is not in the answer, or its text is not among the alternatives.
    """
    text = content[span.start : span.end]
    start, end = _place_in(answer, content, span.start, span.end)
    if not text or answer[start:end] != text or text not in span.texts:
        raise InvalidInput(
            f"alternatives of {text!r}, characters {span.start} to {span.end} of {content[:120]!r}: that "
            "text must be one of them"
        )
    touched = [(first, last) for first, last in offsets if first < end and last > start]
    first, last = touched[0][0], touched[-1][1]
    texts = tuple(answer[first:start] + text + answer[end:last] for text in span.texts)
    return Alternatives(first, last, texts, span.weights)


def token_distributions(
    spans: Sequence[Alternatives],
    answer: str,
    *,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    ids_of: Mapping[str, list[int]],
) -> dict[int, dict[int, float]]:
    """Returns distributions over token ids, by the index of the token in the answer.

    If the tokens of an alternative begin those of another, as those of O-O begin O-O-O, all are learned with
    the token that follows.

    Args:
        spans: Alternatives of parts of `answer`, of whole tokens.
        answer: The answer as the chat template renders it.
        ids: Its token ids.
        offsets: The first character of each token and the one after its last.
        ids_of: The token ids of each alternative.

    Raises:
        InvalidInput: a part of the answer has other tokens than its text has alone, or two alternatives have
            the same tokens.
    """
    targets: dict[int, dict[int, float]] = {}
    for span in spans:
        text = answer[span.start : span.end]
        places = [p for p, (first, last) in enumerate(offsets) if span.start <= first < last <= span.end]
        path = [ids[place] for place in places]
        if path != ids_of[text]:
            raise InvalidInput(
                f"alternatives of {text!r} in {answer[:120]!r}: that text has other tokens alone"
            )
        paths = [tuple(ids_of[alternative]) for alternative in span.texts]
        if _has_prefix(paths) and places[-1] + 1 < len(ids):
            follower = ids[places[-1] + 1]
            paths = [(*path, follower) for path in paths]
            path, places = [*path, follower], [*places, places[-1] + 1]
        weights = dict(zip(paths, span.weights, strict=True))
        if _has_prefix(paths):
            raise InvalidInput(f"alternatives of {text!r}: the tokens of one begin another in {span.texts}")
        for depth, place in enumerate(places):
            targets[place] = _next_tokens(weights, path[:depth]) or {path[depth]: 1.0}
    return targets


def _has_prefix(paths: Sequence[tuple[int, ...]]) -> bool:
    """Returns whether one path begins another, or is another."""
    return any(first == second[: len(first)] for first, second in pairwise(sorted(paths)))


def _next_tokens(weights: Mapping[tuple[int, ...], float], path: Sequence[int]) -> dict[int, float]:
    """Returns the probability of each token after `path`; empty if no text with a weight begins with it.
    `weights` are those of the texts, by their token ids."""
    sums: dict[int, float] = {}
    for ids, weight in weights.items():
        if weight and ids[: len(path)] == tuple(path):
            sums[ids[len(path)]] = sums.get(ids[len(path)], 0.0) + weight
    total = sum(sums.values())
    return {token: weight / total for token, weight in sums.items()}
