"""What a run takes from its model, for the kinds of models that people bring."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import SetupError
from rookery.model_defaults import model_defaults, parameter_count
from tests.conftest import ROOT

SMOLLM2 = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
}  # fmt: skip
QWEN3_4B = {
    "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}  # fmt: skip
THINKING = "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"


def write_model(folder: Path, config: dict[str, Any], *, template: str = "", **manifest: Any) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    if template:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    if manifest:
        (folder / "data_manifest.json").write_text(json.dumps(manifest))
    return str(folder)


@pytest.mark.parametrize(
    ("config", "template", "expected"),
    [
        (SMOLLM2, "{{ messages }}", ("fen-legal-san", 256, 2e-4)),
        (QWEN3_4B, THINKING, ("fen-legal-san", 1024, 1e-4)),
        (QWEN3_4B, "{{ messages }}", ("fen-legal-san", 512, 1e-4)),
        (QWEN3_4B, "", (None, 512, None)),
        ({**SMOLLM2, "max_position_embeddings": 300}, "{{ messages }}", ("fen-legal-san", 150, 2e-4)),
        ({}, "{{ messages }}", ("fen-legal-san", 512, 1e-4)),
    ],
)
def test_a_model_without_a_manifest_is_asked_by_its_template(
    tmp_path: Path, config: dict[str, Any], template: str, expected: tuple[Any, ...]
) -> None:
    defaults = model_defaults(write_model(tmp_path, config, template=template))
    assert (defaults.style, defaults.max_tokens, defaults.lr) == expected


def test_a_manifest_decides_before_the_template(tmp_path: Path) -> None:
    model = write_model(tmp_path, SMOLLM2, template=THINKING, style="ascii-legal-uci", answer_tokens=77)
    defaults = model_defaults(model, style="fen")
    assert (defaults.style, defaults.max_tokens, defaults.lr) == ("ascii-legal-uci", 77, 2e-4)
    reasons = [defaults.reasons[name] for name in ("style", "max_tokens", "lr")]
    assert reasons == ["the model's manifest"] * 2 + ["134 million weights"]
    write_model(tmp_path, SMOLLM2, style="no style")
    with pytest.raises(SetupError, match="'no style', which is none"):
        model_defaults(model)


@pytest.mark.parametrize("name", ["rook-tiny", "rook-small", "rook-small-sft", "rook-small-rl"])
def test_the_shipped_models_keep_their_settings(name: str) -> None:
    defaults = model_defaults(str(ROOT / "models" / name))
    style = "mover-squares" if name == "rook-tiny" else "mover-twice"
    assert (defaults.style, defaults.max_tokens, defaults.lr) == (style, 32, None)


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (SMOLLM2, 134.5e6),  # its card: 134,515,008
        (QWEN3_4B, 4.02e9),  # its card: 4.0 B, 3.6 B of them without embeddings
        ({"text_config": SMOLLM2}, 134.5e6),
    ],
)
def test_weights_are_counted_from_the_configuration(config: dict[str, Any], weights: float) -> None:
    assert parameter_count(config) == pytest.approx(weights, rel=0.01)


def test_a_model_that_is_not_here_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(SetupError, match="'some/model' is not in"):
        model_defaults("some/model")
    with pytest.raises(SetupError, match="no model"):
        model_defaults(str(tmp_path))
