"""Words and layers that are added to a model: its tokens and weights stay, prose survives encoding, and a
deeper model answers as before."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rookery.errors import SetupError
from services.trainer.tiny import TinySettings, add_layers, add_words
from tests.conftest import ROOT

BASE = ROOT / "models/rook-small"
ASKED = "21 KQkq e6 qb4pd5ke8 Ra1Ke1Qd1 Ra1Ke1Qd1"
PROSE = "<think>\n21.Nxd4 takes Black's knight, but 21...Qb4+ wins it.\n</think>\n\\boxed{Nf3}"


def test_a_model_learns_words_and_forgets_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    rare = [{"content": ASKED}, {"content": "hapax"}]
    rows = [[{"content": ASKED}, {"content": PROSE}]] * 2 + [rare]
    soft = {"alternatives": [{"texts": ["Black is ahead.", "White is ahead."]}]}
    data.write_text("".join(json.dumps({"messages": row} | soft) + "\n" for row in rows))
    out = add_words(BASE, data, tmp_path / "out")
    before, after = AutoTokenizer.from_pretrained(BASE), AutoTokenizer.from_pretrained(out)
    for text in (ASKED.removeprefix("21 "), "<think>h4h6 e1e6</think>\\boxed{e1e6}"):
        assert after.encode(text) == before.encode(text)
    assert after.decode(after.encode(PROSE)) == PROSE
    assert after.tokenize(PROSE)[2:6] == ["21", ".", "N", "x"]
    assert {" takes", " ahead"} < set(after.get_vocab()) and "hapax" not in after.get_vocab()
    name = "model.embed_tokens.weight"
    old, new = load_file(BASE / "model.safetensors")[name], load_file(out / "model.safetensors")[name]
    size = len(before)
    assert new.shape[0] >= len(after) > size and torch.equal(new[:size], old[:size].float())
    assert len({path.stat().st_mode for path in out.iterdir()}) == 1, "others may read the weights too"


@pytest.mark.parametrize(("layers", "added"), [(5, {4}), (6, {2, 5}), (8, {1, 3, 5, 7})])
def test_a_deeper_model_answers_as_before_and_can_learn(tmp_path: Path, layers: int, added: set[int]) -> None:
    out = add_layers(BASE, layers, tmp_path)
    old, new = (AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (BASE, out))
    ids = torch.tensor([AutoTokenizer.from_pretrained(out).encode(ASKED)])
    assert torch.equal(old(ids).logits, new(ids).logits)
    new(ids, labels=ids).loss.backward()
    zero = {i for i, layer in enumerate(new.model.layers) if not layer.mlp.down_proj.weight.any()}
    assert zero == added
    assert all(layer.mlp.down_proj.weight.grad.any() for layer in new.model.layers)


@pytest.mark.parametrize("layers", [4, 9])
def test_layers_are_added_up_to_twice_as_many(tmp_path: Path, layers: int) -> None:
    with pytest.raises(SetupError, match=f"--layers {layers}: .*rook-small has 4, so it can get 5 to 8"):
        add_layers(BASE, layers, tmp_path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--words", "a.jsonl"], "--words needs --model"),
        (["--model", "m"], "--model needs either --words or --layers"),
        (["--model", "m", "--words", "a.jsonl", "--layers", "6"], "--model needs either --words or --layers"),
    ],
)
def test_a_model_gets_words_or_layers(tmp_path: Path, flags: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        TinySettings.parse(["--out", str(tmp_path), *flags], prog="tiny")
