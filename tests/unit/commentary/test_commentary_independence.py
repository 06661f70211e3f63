"""A truth is written on its own: it shares no code with what finds things to say."""

import dis
import functools
import types
from collections.abc import Callable
from typing import Any

from commentary import read  # noqa: F401 -- fills the registry
from commentary.concept import CONCEPTS, no_truth


def _globals_of(code: types.CodeType) -> set[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return names.union(*map(_globals_of, inner))


def _reached(function: Callable[..., Any], seen: set[types.FunctionType]) -> set[types.FunctionType]:
    """The functions of the library that a function calls, and those that they call."""
    while isinstance(function, functools.partial):
        for given in (*function.args, *function.keywords.values()):
            if callable(given):
                _reached(given, seen)
        function = function.func
    ours = isinstance(function, types.FunctionType) and function.__module__.startswith("commentary")
    if ours and function not in seen:
        seen.add(function)
        for name in _globals_of(function.__code__):
            if callable(called := function.__globals__.get(name)):
                _reached(called, seen)
    return seen


def test_no_truth_shares_a_function_with_a_detector() -> None:
    truths: set[types.FunctionType] = set()
    detectors: set[types.FunctionType] = set()
    for concept in CONCEPTS.values():
        assert concept.holds is not no_truth, concept.name
        _reached(concept.holds, truths)
        if concept.detect is not None:
            _reached(concept.detect, detectors)
    assert len(truths) > 100
    assert len(detectors) > 100
    assert {function.__qualname__ for function in truths & detectors} == set()
