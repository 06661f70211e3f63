"""The two APIs of OpenAI for completions: what they are asked, and how their answers are read."""

import json
import math
from collections.abc import Mapping
from typing import Any

from rookery.prompt import GAME_STYLES
from rookery.tool_calls import CALL_ID
from rookery.trace import Completion, Prompt, Sampling


class _ChatApi:
    """The chat completions API. A last message of the assistant is continued, which vLLM alone can do."""

    path = "/v1/chat/completions"
    logprobs: Mapping[str, Any] = {"logprobs": True, "top_logprobs": 0}

    def request_fields(self, prompt: Prompt) -> dict[str, Any]:
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        if prompt.tools:  # which the template shows; calls stay in the text
            messages = [m | {"tool_call_id": CALL_ID} if m["role"] == "tool" else m for m in messages]
            return {"messages": messages, "tools": json.loads(prompt.tools), "tool_choice": "none"}
        if not messages or messages[-1]["role"] != "assistant":
            return {"messages": messages}
        return {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}

    def prompt_token_ids(self, body: dict[str, Any]) -> tuple[int, ...]:
        return tuple(body["prompt_token_ids"])

    def text(self, choice: dict[str, Any], opening: str) -> str:
        message = choice["message"]
        fields = [message.get(name) for name in ("reasoning", "reasoning_content")]
        if reasonings := [reasoning for reasoning in fields if reasoning is not None]:  # "" is reasoning, too
            opening = f"<think>{_text_of(max(reasonings, key=len))}</think>"  # which the server has taken out
        return opening + _text_of(message["content"])

    def token_logprobs(self, choice: dict[str, Any]) -> list[float]:
        return [token["logprob"] for token in choice["logprobs"]["content"]]


class _CompletionsApi:
    """The plain completions API."""

    path = "/v1/completions"
    logprobs: Mapping[str, Any] = {"logprobs": 0}

    def request_fields(self, prompt: Prompt) -> dict[str, Any]:
        line_ends = {"stop": ["\n"]} if prompt.style in GAME_STYLES else {}
        return {"prompt": "".join(m.content for m in prompt.messages), **line_ends}

    def prompt_token_ids(self, body: dict[str, Any]) -> tuple[int, ...]:
        return tuple(body["choices"][0]["prompt_token_ids"])

    def text(self, choice: dict[str, Any], opening: str) -> str:
        return opening + str(choice["text"])

    def token_logprobs(self, choice: dict[str, Any]) -> list[float]:
        return list(choice["logprobs"]["token_logprobs"])


Api = _ChatApi | _CompletionsApi
CHAT, LINE = _ChatApi(), _CompletionsApi()


def request_of(
    api: Api, prompt: Prompt, *, model: str, sampling: Sampling, tokens: bool, thinking: bool | None
) -> dict[str, Any]:
    """A request for completions, but for their number and seed. `tokens` and `thinking` are those of
    `InferenceClient.complete`."""
    request: dict[str, Any] = {
        "model": model,
        **api.request_fields(prompt),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
    }
    if tokens:
        request |= {
            **api.logprobs,
            "top_k": sampling.top_k if sampling.top_k else -1,
            "min_p": 0.0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
    if thinking is not None and api is CHAT:
        request["chat_template_kwargs"] = {"enable_thinking": thinking}
    return request


def _text_of(content: Any) -> str:
    """The text of a message. If it has chunks, as Mistral's do, their reasoning is put in `<think>` tags.
    Raises `TypeError` if the content is neither text nor a list of such chunks."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for chunk in content:
        match chunk:
            case {"type": "thinking", "thinking": [*thoughts]}:
                texts.append(f"<think>{_text_of(thoughts)}</think>")
            case {"type": "thinking", "thinking": str(thought)}:
                texts.append(f"<think>{thought}</think>")
            case {"type": "reference"}:  # a citation
                continue
            case {"text": str(text)} | {"refusal": str(text)}:
                texts.append(text)
            case _:
                raise TypeError(f"a chunk without text: {repr(chunk)[:100]}")
    return "".join(texts)


_FINISHED = ("stop", "length")
"""The finish reasons of whole completions. With status 200, vLLM gives `abort` for a request that it gave up,
and none for one that is not finished."""


def read_completion(api: Api, choice: dict[str, Any], *, seed: int, tokens: bool, opening: str) -> Completion:
    """Reads one choice of an answer. `opening` is put before its text. Raises `KeyError` or `TypeError` or
    `ValueError` if the choice is incomplete."""
    where = f"choice {choice['index']}"
    if choice["finish_reason"] not in _FINISHED:
        raise ValueError(f"{where}: finish_reason {choice['finish_reason']!r} is none of {_FINISHED}")
    token_ids, logprobs = (choice["token_ids"], api.token_logprobs(choice)) if tokens else ((), ())
    if len(token_ids) != len(logprobs):
        raise ValueError(f"{where}: {len(token_ids)} tokens, {len(logprobs)} logprobs")
    if not all(map(math.isfinite, logprobs)):
        raise ValueError(f"{where}: a log-probability is not finite: {logprobs}")
    return Completion(
        text=api.text(choice, opening),
        token_ids=tuple(token_ids),
        logprobs=tuple(map(float, logprobs)),
        finish_reason=choice["finish_reason"],
        seed=seed + int(choice["index"]),
    )
