"""Every example in a docstring is true."""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.conftest import ROOT, require

WITH_EXAMPLES = sorted(
    path
    for package in ("launcher", "rookery", "services")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text()
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=module_name)
def test_examples_are_true(path: Path) -> None:
    if "import torch" in path.read_text():
        require("torch")
    result = doctest.testmod(importlib.import_module(module_name(path)))
    assert result.attempted > 0
    assert result.failed == 0
