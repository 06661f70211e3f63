"""The ledger: what was added is there again, a torn last line costs itself alone."""

from pathlib import Path

import pytest

from rookery.errors import InvalidInput
from services.arena.ledger import Ledger, key_of


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with Ledger(path) as ledger:
        ledger.add("a", {"move": "e2e4"})
        ledger.add("b", {"move": "d2d4"})
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with Ledger(path) as ledger:
            assert ledger.get("a") == {"key": "a", "move": "e2e4"}
            assert ledger.get("b") is None
            ledger.add("b", {"move": "d2d4"})
        assert path.read_bytes() == whole


def test_another_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"key": "a"}\n{"move": 1}\n{"key": "b"}\n')
    with pytest.raises(InvalidInput, match=r"answers\.jsonl:2: no answer"):
        Ledger(path)


def test_the_key_has_every_value_in_it() -> None:
    question = {"player": {"kind": "random"}, "seed": 0}
    assert key_of(question) != key_of({**question, "seed": 1})
