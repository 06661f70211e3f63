"""Calls of chess tools in an answer: in plain tags, or in JSON as most chat templates have them."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from rookery.answers import after_reasoning
from rookery.errors import InvalidInput
from rookery.hub import TEMPLATE_ERRORS, render_chat, with_system_role

TAGS_NOTE = (
    "Before you answer, you may write one call, up to {turns} times, and wait: <tool>board</tool>, "
    "<tool>legal_moves</tool>, <tool>after MOVE ...</tool> for the board after moves, <tool>engine</tool> "
    "for the best move, which has a price."
)
JSON_NOTE = "Before you answer, you may call tools, up to {turns} times, one call at a time."


class ToolCall(NamedTuple):
    """A call: the tool's name, and the words after it. `fault` says what is wrong with one without a name."""

    name: str
    words: list[str]
    fault: str = ""


def _schema(name: str, description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_MOVES = {"type": "array", "items": {"type": "string"}, "description": "Moves of both sides, as e4 or e2e4."}
SCHEMAS = (
    _schema("board", "Shows the board."),
    _schema("legal_moves", "Lists the legal moves."),
    _schema("after", "Shows the board after moves.", moves=_MOVES),
    _schema("engine", "Tells the best move, which has a price."),
)
"""What a chat template is given as `tools`."""
CALL_ID = "000000000"
"""Of every call: a conversation has one at a time. Mistral's templates want nine characters."""
_NAMES = [schema["function"]["name"] for schema in SCHEMAS]

_TAG = re.compile(r"<tool>\s*+(\w{1,20}+)([^<\\]{0,200}+)</tool>")


def tag_call(text: str) -> ToolCall | None:
    """The last call in tags of a text that does not answer after it."""
    *_, last = None, *_TAG.finditer(text)
    if last is None or r"\boxed" in text[last.end() :]:
        return None
    return ToolCall(last[1], last[2].replace("(", " ").replace(")", " ").replace(",", " ").split())


_TAIL, _LONGEST = 2000, 500
"""How many of the last characters of a text are read, and how many of a call. So reading takes milliseconds,
and no nesting is deeper than Python's parser goes."""
_MARK = re.compile(r'<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|\{\s*"name"')
_JSON = json.JSONDecoder()


def json_call(text: str) -> ToolCall | None:
    """The last call in JSON, after the reasoning, of a text that does not answer after it: an object with a
    `name` and `arguments`, as of Hermes, Qwen and Mistral, or `parameters`, as of Llama."""
    text, call, call_end, object_end = after_reasoning(text)[-_TAIL:], None, 0, 0
    for brace in re.finditer("{", text):
        if brace.start() < object_end:  # in the object before
            continue
        try:
            value, length = _JSON.raw_decode(text[brace.start() :][:_LONGEST])
        except ValueError:
            continue
        object_end = brace.start() + length
        if "name" in value and not value.keys().isdisjoint(("arguments", "parameters")):
            call = _checked(value["name"], value.get("arguments", value.get("parameters")))
            call_end = object_end
    *_, mark = None, *_MARK.finditer(text, call_end)
    if mark and r"\boxed" not in text[: mark.start()]:
        call, call_end = _broken_call(text[mark.start() :]), mark.end()
    return None if r"\boxed" in text[call_end:] else call


def _checked(name: Any, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):  # as in OpenAI's API
        with suppress(ValueError):
            arguments = _JSON.raw_decode(arguments)[0]
    match name, arguments:
        case "after", {"moves": str(moves), **others} if moves.strip() and not others:
            return ToolCall("after", moves.replace(",", " ").split())
        case "after", {"moves": [*moves], **others} if moves and not others:
            if all(isinstance(move, str) for move in moves):
                return ToolCall("after", moves)
        case (("board" | "legal_moves" | "engine"), _) if not arguments:
            return ToolCall(name, [])
    if name not in _NAMES:
        return ToolCall("", [], f"No tool {str(name)[:40]!r}: {', '.join(_NAMES)}")
    return ToolCall("", [], f"{name} takes {'moves, a list of moves' if name == 'after' else 'no arguments'}")


def _broken_call(text: str) -> ToolCall:
    """A text that begins as a call does, and is none."""
    why = "name or arguments are missing in the outermost one"
    try:
        _JSON.raw_decode(("{" + text.partition("{")[2])[:_LONGEST])
    except ValueError as error:
        why = str(error)
    return ToolCall("", [], f"No call, which is a JSON object with the tool's name and arguments: {why}")


@cache
def can_call(template: str) -> bool:
    """Whether a chat template shows tools, and calls that `json_call` reads, with their results. False if it
    cannot be tried here."""
    arguments, result = {"moves": ["e4"]}, "Black to move."
    raw = f"<tool_call>\n{json.dumps({'name': 'after', 'arguments': arguments})}\n</tool_call>"
    asked = [{"role": "system", "content": "A system."}, {"role": "user", "content": "A question."}]
    answer = {"role": "tool", "content": result, "tool_call_id": CALL_ID}
    turn = [{"role": "assistant", "content": raw}, answer]
    parsed = {"id": CALL_ID, "type": "function", "function": {"name": "after", "arguments": arguments}}
    try:
        template = with_system_role(template)
        shown = render_chat(template, [*asked, *turn, *turn], tools=SCHEMAS)
        written = render_chat(
            template, [*asked, {"role": "assistant", "content": "", "tool_calls": [parsed]}], tools=SCHEMAS
        )
    except (ImportError, InvalidInput, *TEMPLATE_ERRORS):
        return False
    texts = [schema["function"]["description"] for schema in SCHEMAS]
    return (
        all(text in shown for text in texts)
        and shown.count(raw) == shown.count(result) == 2
        and json_call(written) == ToolCall("after", ["e4"])
    )
