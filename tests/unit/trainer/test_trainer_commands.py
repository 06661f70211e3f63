"""The commands of `python -m services.trainer`, whose modules are imported only when they are called."""

import importlib

import pytest

from rookery.settings import Settings
from services.trainer.__main__ import COMMANDS, TRAIN


@pytest.mark.parametrize(("prog", "settings", "module"), [*COMMANDS.values(), TRAIN])
def test_a_command_has_settings_and_a_function(prog: str, settings: str, module: str) -> None:
    place, _, name = settings.rpartition(".")
    assert issubclass(getattr(importlib.import_module(place), name), Settings), prog
    assert callable(importlib.import_module(f"services.trainer.{module}").run), prog
