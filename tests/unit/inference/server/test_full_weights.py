"""What whole models are refused before vLLM sees them, each with the value that was wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import InvalidInput, SetupError
from rookery.trace import PolicyVersion
from services.inference.server.full_weights import FullWeightsRules
from tests.unit.inference.server.full_weight_models import CONFIG, SHAPES, write_model


@pytest.fixture
def rules(tmp_path: Path) -> FullWeightsRules:
    write_model(tmp_path / "tiny")
    (tmp_path / "runs").mkdir()
    return FullWeightsRules(tmp_path / "runs", frozenset({"tiny"}), tmp_path / "tiny")


def test_a_sound_model_passes_and_its_path_is_resolved(rules: FullWeightsRules) -> None:
    model = write_model(rules.root / "v1", version=1)
    assert rules.verify(replace(model, path="../runs/v1")) == model


def test_names_may_lack_their_prefix_and_old_masks_are_passed_over(rules: FullWeightsRules) -> None:
    shapes = {name.removeprefix("transformer."): shape for name, shape in SHAPES.items()}
    shapes |= {"h.0.attn.bias": (1, 1, 9, 9), "h.0.attn.masked_bias": (2,), "lm_head.weight": (6, 4)}
    model = {"shapes": shapes, "config": CONFIG | {"dtype": "x", "n_ctx": 9}}
    rules.verify(write_model(rules.root / "v1", version=1, **model))
    masks = {"h.0.attn.bias": "U8", "h.0.attn.masked_bias": "BOOL"}
    rules.verify(write_model(rules.root / "v2", version=1, **model, dtypes=masks))


def test_weights_that_are_no_floats_are_refused(rules: FullWeightsRules) -> None:
    model = write_model(rules.root / "v1", version=1, dtypes={"transformer.wte.weight": "U8"})
    with pytest.raises(InvalidInput, match=r"wte\.weight' has dtype U8: it must be one of F32, F16, BF16"):
        rules.verify(model)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"shapes": dict(list(SHAPES.items())[:1])}, r"missing h\.0\.mlp\.c_fc\.weight"),
    "unknown": ({"shapes": {**SHAPES, "transformer.wpe.weight": (1, 4)}}, r"unknown wpe\.weight"),
    "misshapen": ({"shapes": {**SHAPES, "transformer.wte.weight": (7, 4)}}, r"misshapen wte\.weight"),
    "heads": ({"config": CONFIG | {"n_head": 4}}, "n_head is 4, in the base model 2"),
    "norm": (
        {"config": CONFIG | {"layer_norm_epsilon": 1.0}},
        "layer_norm_epsilon is 1.0, in the base model None",
    ),
    "list": ({"config": []}, "is not a JSON object"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_another_model_is_refused(rules: FullWeightsRules, wrong: str) -> None:
    change, message = WRONG[wrong]
    with pytest.raises(InvalidInput, match=message):
        rules.verify(write_model(rules.root / "v1", version=1, **change))


def test_other_bytes_places_and_bases_are_refused(rules: FullWeightsRules, tmp_path: Path) -> None:
    model = write_model(rules.root / "v1", version=1)
    for bad, message in (
        (replace(model, version=PolicyVersion(1, "0" * 64)), "has sha256"),
        (replace(model, base_model="large"), "this server has \\['tiny'\\]"),
        (replace(model, path=str(tmp_path / "tiny")), "outside the root"),
        (replace(model, path="nowhere"), "has no config.json"),
    ):
        with pytest.raises(InvalidInput, match=message):
            rules.verify(bad)
    weights = Path(model.path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    with pytest.raises(InvalidInput, match="not a whole safetensors file"):
        rules.verify(model)


def test_a_base_may_lie_in_several_files(tmp_path: Path) -> None:
    names = list(SHAPES)
    for number, name in enumerate(names):
        write_model(tmp_path / "tiny", shapes={name: SHAPES[name]}, name=f"part-{number}.safetensors")
    index = {"weight_map": {name: f"part-{number}.safetensors" for number, name in enumerate(names)}}
    (tmp_path / "tiny" / "model.safetensors.index.json").write_text(json.dumps(index))
    rules = FullWeightsRules(tmp_path, frozenset({"tiny"}), tmp_path / "tiny")
    rules.verify(write_model(tmp_path / "v1", version=1))


def test_a_base_that_cannot_be_read_is_a_wrong_setup(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="base model"):
        FullWeightsRules(tmp_path, frozenset({"tiny"}), tmp_path)
