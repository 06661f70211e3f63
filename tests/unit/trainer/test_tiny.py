"""Words that are added to a model: its tokens and weights stay, and prose survives encoding."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from rookery.errors import SetupError
from services.trainer.tiny import TinySettings, add_words
from tests.conftest import ROOT

BASE = ROOT / "models/rook-small"
ASKED = "21 KQkq e6 qb4pd5ke8 Ra1Ke1Qd1 Ra1Ke1Qd1"
PROSE = "<think>\n21.Nxd4 takes Black's knight, but 21...Qb4+ wins it.\n</think>\n\\boxed{Nf3}"


def test_a_model_learns_words_and_forgets_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rare = [{"content": ASKED}, {"content": "hapax"}]
    rows = [[{"content": ASKED}, {"content": PROSE}]] * 2 + [rare]
    data.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    out = add_words(BASE, data, tmp_path / "out")
    before, after = AutoTokenizer.from_pretrained(BASE), AutoTokenizer.from_pretrained(out)
    for text in (ASKED.removeprefix("21 "), "<think>h4h6 e1e6</think>\\boxed{e1e6}"):
        assert after.encode(text) == before.encode(text)
    assert after.decode(after.encode(PROSE)) == PROSE
    assert after.tokenize(PROSE)[2:6] == ["21", ".", "N", "x"]
    assert " takes" in after.get_vocab() and "hapax" not in after.get_vocab()
    name = "model.embed_tokens.weight"
    old, new = load_file(BASE / "model.safetensors")[name], load_file(out / "model.safetensors")[name]
    size = len(before)
    assert new.shape[0] >= len(after) > size and torch.equal(new[:size], old[:size].float())


def test_words_need_a_model(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--model and --words must be given together"):
        TinySettings.parse(["--out", str(tmp_path), "--words", "a.jsonl"], prog="tiny")
