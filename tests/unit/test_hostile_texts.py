"""No text makes a regular expression slow: its time grows as the length of the text does, not as its square.

The texts are made from each expression: something that it repeats, many times, after an example of what comes
before that, and with an end that does not fit.
"""

import ast
import importlib
import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

from commentary.concept import CONCEPTS
from rookery import answers, masking
from rookery.answers import before_answer, extract
from rookery.errors import Unauthorized
from rookery.masking import mask_setting, mask_text, mask_values
from rookery.pgn import rawgame, reader, splitter
from rookery.pgn.rawgame import RawGame
from rookery.pgn.reader import read_game
from rookery.pgn.splitter import Splitter
from tests.conftest import ROOT
from tests.unit.test_doctests import module_name, needs_torch

CHARS = 16_000
SLOW_S = 0.05
LIMIT_S = 2.0
"""Of CPU. What is linear takes milliseconds."""

SENTENCE = 600
SHORT = {
    "commentary.slots": SENTENCE,
    "commentary.template": SENTENCE,
    "commentary.token": SENTENCE,
    "commentary.wording": SENTENCE,
}
"""Modules whose expressions only see texts of so many characters."""

SOURCES = [
    path
    for package in ("arena", "chess_datasets", "rookery", "commentary", "launcher", "services")
    for path in sorted((ROOT / package).rglob("*.py"))
    if re.search(r"\bre\.\w+\(", text := path.read_text()) and "import torch" not in text
]
ALPHABET = "a1 \n\\'{[(-.?&:/AxK"
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def children(code: Any, value: Any) -> list[Any]:
    """The parts of an item of a parsed expression."""
    if code is codes.BRANCH:
        return list(value[1])
    if code in REPEATS:
        return [value[2]]
    if code in (codes.SUBPATTERN, codes.ATOMIC_GROUP, codes.ASSERT, codes.ASSERT_NOT):
        return [value if code is codes.ATOMIC_GROUP else value[-1]]
    return []


def matched(tree: Any, item: Any) -> list[str]:
    """The characters of `ALPHABET`, and of literals, that an item matches."""
    if item[0] is codes.LITERAL:
        return [chr(item[1])]
    one = _compiler.compile(_parser.SubPattern(tree.state, [item]), 0)
    return [char for char in ALPHABET if one.fullmatch(char)][:4] or [" "]


def example(tree: Any, seen: dict[int, str]) -> str:
    """A short text that an expression matches, but for what must be around it."""
    text = ""
    for code, value in tree:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            text += matched(tree, (code, value))[0]
        elif code is codes.GROUPREF:
            text += seen.get(value, "")
        elif code not in (codes.ASSERT, codes.ASSERT_NOT) and (parts := children(code, value)):
            part = example(parts[0], seen)
            text += part * value[0] if code in REPEATS else part
            if code is codes.SUBPATTERN:
                seen[value[0]] = part
    return text


def repeated(tree: Any, before: str, seen: dict[int, str]) -> Iterator[tuple[str, str]]:
    """What an expression may repeat often, each with what comes before it."""
    for item in tree:
        code, value = item
        for part in children(code, value):
            if code in REPEATS and value[1] > 20:
                yield before, example(part, dict(seen))
                if len(part) == 1 and not children(*part[0]) and part[0][0] is not codes.GROUPREF:
                    yield from ((before, char) for char in matched(part, part[0]))
            yield from repeated(part, before, seen)
        before += example(_parser.SubPattern(tree.state, [item]), seen)


def texts(pattern: "re.Pattern[Any]") -> set[tuple[str, str, str]]:
    """Beginnings, repeated parts and ends of texts that may take long."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(
        source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    )
    whole = example(tree, {})
    found = {("", part, "") for part in (whole, whole[:-1], f"{whole} ") if part}
    for before, part in repeated(tree, "", {}):
        found |= {(before, part, end) for end in ("", "\0") if part}
        found |= {("", before + part, ""), ("", before or part, "")}
    return found


def cpu_s(use: Callable[[], object]) -> float:
    """The CPU time of a call. One that takes more than `LIMIT_S` is ended, and counts as endless."""

    def end(*_: object) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGVTALRM, end)
    before = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        use()
    except TimeoutError:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
    return time.process_time() - before


def is_linear(use: Callable[[str], object], text: tuple[str, str, str], chars: int) -> bool:
    before, part, end = text
    long, half = (before + part * (length // len(part) + 1) + end for length in (chars, chars // 2))
    return any(
        (spent := cpu_s(lambda: use(long))) < SLOW_S or spent < 3 * cpu_s(lambda: use(half)) for _ in range(3)
    )


def expressions(module: ModuleType, source: str) -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    """The expressions of a module by name, and those that it passes to a function of `re`."""
    tree = ast.parse(source)
    for node in tree.body:
        names = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        for name in (name.id for name in names if isinstance(name, ast.Name)):
            yield from ((name, pattern) for pattern in compiled(getattr(module, name)))
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("re"), function), [ast.Constant(text), *_]) if (
                function != "compile"
            ):
                yield f"re.{function}", re.compile(text)


def compiled(value: Any) -> Iterator["re.Pattern[Any]"]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from compiled(part)


def used(name: str, pattern: "re.Pattern[Any]", source: str) -> Callable[[Any], object]:
    """Applies a pattern as its module does: to the whole of a text, or wherever it fits."""
    methods = set(re.findall(rf"\b{name}\.(\w+)\(", source)) or {name.removeprefix("re.")}
    if methods <= {"match", "fullmatch"}:
        return pattern.match if "match" in methods else pattern.fullmatch
    return lambda text: sum(1 for _ in pattern.finditer(text))


def texts_for(module: ModuleType) -> set[tuple[str, str, str]]:
    assert module.__file__
    found = expressions(module, Path(module.__file__).read_text())
    return {text for _, pattern in found for text in texts(pattern)}


@pytest.mark.parametrize("path", [p for p in SOURCES if not needs_torch(p)], ids=module_name)
def test_a_regular_expression_is_linear(path: Path) -> None:
    assert_linear(path)


def assert_linear(path: Path) -> None:
    """Every regular expression of a module is linear."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    module, source = importlib.import_module(name), path.read_text()
    for variable, pattern in expressions(module, source):
        use = used(variable, pattern, source)
        given = (
            use
            if isinstance(pattern.pattern, str)
            else lambda text, use=use: use(text.encode("latin-1", "replace"))
        )
        for text in texts(pattern):
            assert is_linear(given, text, SHORT.get(name, CHARS)), (variable, text)


def test_the_templates_of_sentences_are_linear() -> None:
    for concept in CONCEPTS.values():
        for template in concept.templates:
            found = [pattern.fullmatch for pattern in (template.clause, template.predicate) if pattern]
            if template.within:
                found = [
                    template.anywhere.findall,
                    *([template.beginning.findall] if template.subject else []),
                ]
            for find in found:
                for text in texts(find.__self__):
                    assert is_linear(find, text, SENTENCE), (concept.name, text)


def split(text: str) -> None:
    splitter = Splitter()
    for line in text.encode().splitlines(keepends=True):
        splitter.feed(line)


@pytest.mark.parametrize(
    ("read", "modules"),
    [
        (mask_text, [masking]),
        (mask_setting, [masking]),
        (mask_values, [masking]),
        (lambda path: str(Unauthorized(f"GET {path}")), [masking]),
        (extract, [answers]),
        (before_answer, [answers]),
        (split, [splitter]),
        (lambda text: RawGame(1, text.encode()).id, [rawgame]),
        (read_game, [reader, rawgame]),
    ],
)
def test_reading_a_text_is_linear(read: Callable[[str], object], modules: list[ModuleType]) -> None:
    for text in set().union(*map(texts_for, modules)):
        assert is_linear(read, text, CHARS), text
