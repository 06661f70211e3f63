"""Calls of tools in JSON: what is read as one, and which chat templates can have them."""

import json

import pytest

from rookery.tool_calls import SCHEMAS, ToolCall, can_call, json_call
from tests.chat_models import HERMES_TEMPLATE as HERMES

AFTER = '{"name": "after", "arguments": {"moves": ["e4", "e5"]}}'


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (f"Let me see.\n<tool_call>\n{AFTER}\n</tool_call>", ToolCall("after", ["e4", "e5"])),
        ('{"name": "board", "parameters": {}}', ToolCall("board", [])),
        ('<|python_tag|>{"type": "function", "name": "engine", "parameters": null}', ToolCall("engine", [])),
        (
            '[TOOL_CALLS] [{"name": "after", "arguments": {"moves": "e4, e5"}}]',
            ToolCall("after", ["e4", "e5"]),
        ),
        (f'[TOOL_CALLS][{AFTER}, {{"name": "board", "arguments": {{}}}}]', ToolCall("board", [])),
        (f"<think>{AFTER}?</think>I know: e4", None),
        (f"<think>{AFTER}", None),
        (f"{AFTER} \\boxed{{e4}}", None),
        (f"\\boxed{{e4}} or {AFTER}", ToolCall("after", ["e4", "e5"])),
        (r"\boxed{e4} without any <tool_call>", None),
        ('{"name": "after", "arguments": "{\\"moves\\": [\\"e4\\"]}"}', ToolCall("after", ["e4"])),
        ('A set {"a": 1} {b} and {"arguments": {}}', None),
        ("e4", None),
        ("", None),
    ],
)
def test_the_last_call_is_read(text: str, call: ToolCall | None) -> None:
    assert json_call(text) == call


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('<tool_call>{"name": "board", "arguments": {}', "Expecting ',' delimiter: line 1 column 34"),
        ("<tool_call>board</tool_call>", "Expecting property name"),
        (f"{AFTER}\n<tool_call>{{'name': 'board'}}", "Expecting property name"),
        ('{"name": "board"}', "name or arguments are missing"),
        ('{"function": {"name": "board", "arguments": {}}}', "name or arguments are missing"),
        ('{"name": "cheat", "arguments": {}}', "No tool 'cheat': board, legal_moves, after, engine"),
        ('{"name": ["board"], "arguments": {}}', "No tool \"['board']\""),
        ('{"name": "\\ud800", "arguments": {}}', r"No tool '\ud800'"),
        ('{"name": "engine", "arguments": {"nodes": 9}}', "engine takes no arguments"),
        ('{"name": "after", "arguments": {}}', "after takes moves, a list of moves"),
        ('{"name": "after", "arguments": {"moves": []}}', "after takes moves"),
        ('{"name": "after", "arguments": {"moves": [4]}}', "after takes moves"),
        ('{"name": "after", "arguments": {"moves": " "}}', "after takes moves"),
        ('{"name": "after", "arguments": {"moves": ["e4"], "depth": 1}}', "after takes moves"),
        ('{"name": "after", "arguments": {"moves": 1e999}}', "after takes moves"),
        ('{"name": "after", "arguments": {"moves": ' + 400 * "9" + "}}", "after takes moves"),
        ('{"name": "after", "arguments": ' + 400 * "[", "Expecting value"),
        ('{"name": "after", "arguments": {"moves": ["' + 200 * "e4 " + '"]}}', "Unterminated string"),
        (9999 * "[TOOL_CALLS]", "Expecting property name"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(text: str, why: str) -> None:
    call = json_call(text)
    assert call is not None
    assert (call.name, call.words) == ("", [])
    assert why in call.fault
    assert len(call.fault) < 200


@pytest.mark.parametrize("part", ["{", '{"":', '{"a":[', "[[{", '{"name', "\\", '{"a":1,'])
def test_hostile_texts_are_no_calls(part: str) -> None:
    assert json_call(99_999 * part) is None


XML = "<function={{ c.function.name }}><parameter=moves>{{ c.function.arguments.moves }}</parameter>"


@pytest.mark.parametrize(
    ("template", "able"),
    [
        (HERMES, True),
        ("{{ raise_exception('no system') if messages[0].role == 'system' }}" + HERMES, True),
        ("{{ raise_exception('no tool') if messages[-1].role == 'tool' }}" + HERMES, False),
        ("{{ 1 / 0 if messages[-1].role == 'tool' and not messages[-1].tool_call_id }}" + HERMES, True),
        (HERMES.replace("tools | tojson", "'some'"), False),
        (HERMES.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"), False),
        (HERMES.replace("{{ m.content }}", "{{ m.content.split('<tool_call>')[0] }}"), False),
        (HERMES[: HERMES.index("<tool_call>")] + XML + "{% endfor %}{% endfor %}", False),
        (HERMES.replace("m.tool_calls or []", "[]"), False),
        ("{{ messages[99].content.text }}" + HERMES, False),
        ("{{ 1 / 0 }}", False),
        ("{% if %}", False),
        ("", False),
    ],
)
def test_a_template_can_call_if_it_shows_all_of_a_call(template: str, able: bool) -> None:
    pytest.importorskip("jinja2")
    assert can_call(template) == able


def test_schemas_name_what_is_read() -> None:
    for schema in SCHEMAS:
        function = schema["function"]
        arguments = {name: ["e4"] for name in function["parameters"]["required"]}
        call = json_call(json.dumps({"name": function["name"], "arguments": arguments}))
        assert call == ToolCall(function["name"], ["e4"] if arguments else [])
