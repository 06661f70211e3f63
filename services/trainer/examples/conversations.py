"""Turns chats into token ids: the context, and the answer that carries loss."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import TemplateError

from rookery.errors import InvalidInput
from services.trainer.examples.alternatives import Alternatives, soft_targets
from services.trainer.fitting.layout import Example, SoftTargets

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation with the assistant's answer last, and soft targets for parts of that answer."""

    messages: Messages
    alternatives: Sequence[Alternatives] = ()


def chat_of(row: Mapping[str, Any], *columns: str) -> Chat:
    """Builds a chat from the messages of these columns and from `alternatives`, if the row has them.

    Raises:
        InvalidInput: the messages or alternatives are malformed, or the last message is not the assistant's.
    """
    messages = answered(*(row[name] for name in columns))
    return Chat(messages, [Alternatives.of(value) for value in row.get("alternatives") or ()])


def answered(*parts: Any) -> Messages:
    """Joins lists of messages, such as a prompt's and an answer's, into one chat with the answer last.

    Raises:
        InvalidInput: a part is not a list of messages (a prompt may be plain text, for example), or the last
            message is not the assistant's.
    """
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
    """Returns whether `value` is a valid string. JSON can hold lone surrogates, which tokenizers reject."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def tokenize(chats: Sequence[Chat], tokenizer: Any) -> list[Example]:
    """Applies the model's chat template. The answer is the text after the generation prompt.

    Prompt and answer are tokenised separately, as they are when the model generates.

    Raises:
        InvalidInput: a chat has no prompt; the template rejects it, or does not render it as its prompt plus
            the answer, so that the assistant's tokens are unknown; or alternatives do not fit the tokens.
    """
    answers, prompts = [], []
    for chat in chats:
        messages = chat.messages
        if len(messages) < 2:
            raise InvalidInput(f"nothing comes before the answer {messages[0]['content'][:80]!r}")
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False)
            prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise InvalidInput(f"the chat template refuses {str(messages)[:200]!r}: {error}") from error
        if not prompt or not text.startswith(prompt):
            raise InvalidInput(f"the chat template renders {prompt[-80:]!r}, not a prefix of {text[:200]!r}")
        answers.append(text[len(prompt) :])
        prompts.append(prompt)
    prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
    soft = any(chat.alternatives for chat in chats)
    tokens = tokenizer(answers, add_special_tokens=False, return_offsets_mapping=soft)
    ids_of = cache(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])
    examples = [
        Example(array("i", prompt), (array("i", answer),))
        for prompt, answer in zip(prompt_ids, tokens["input_ids"], strict=True)
    ]
    for i, chat in enumerate(chats):
        if chat.alternatives:
            ids = tokens["input_ids"][i]
            distributions = soft_targets(
                chat.alternatives,
                chat.messages[-1]["content"],
                within=answers[i],
                ids=ids,
                offsets=tokens["offset_mapping"][i],
                ids_of=ids_of,
            )
            examples[i] = replace(examples[i], soft_targets=SoftTargets.of(ids, distributions))
    return examples
