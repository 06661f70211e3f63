"""Every example in a docstring is true."""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.conftest import ROOT

WITH_EXAMPLES = sorted(
    path
    for package in ("launcher", "rookery", "services")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text()
)


def needs_torch(path: Path) -> bool:
    """Whether a module's tests are with the trainer's, in the one process that imports torch."""
    return path.is_relative_to(ROOT / "services" / "trainer") or "import torch" in path.read_text()


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", [p for p in WITH_EXAMPLES if not needs_torch(p)], ids=module_name)
def test_examples_are_true(path: Path) -> None:
    assert_true(path)


def assert_true(path: Path) -> None:
    """Every example of a module is true."""
    result = doctest.testmod(importlib.import_module(module_name(path)))
    assert result.attempted > 0
    assert result.failed == 0
