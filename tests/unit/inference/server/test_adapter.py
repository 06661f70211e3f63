"""What is refused before vLLM sees it, each with the value that was wrong."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.noise_adapter import write_adapter
from rookery.errors import InvalidInput
from rookery.trace import Adapter, PolicyVersion
from services.inference.server.adapter import AdapterRules, weight_change


@pytest.fixture
def rules(tmp_path: Path) -> AdapterRules:
    root = tmp_path / "runs"
    root.mkdir()
    return AdapterRules(root, frozenset({"tiny"}), max_rank=8)


@pytest.fixture
def adapter(model: Path, rules: AdapterRules) -> Adapter:
    return write_adapter(rules.root / "v1", model, version=1, rank=4)


def test_a_sound_adapter_passes_and_its_path_is_resolved(adapter: Adapter, rules: AdapterRules) -> None:
    relative = dataclasses.replace(adapter, path="../runs/v1")

    assert rules.verify(adapter) == adapter
    assert rules.verify(relative).path == str((rules.root / "v1").resolve())


def test_another_base_model_is_refused(adapter: Adapter, rules: AdapterRules) -> None:
    with pytest.raises(InvalidInput, match="Qwen/Qwen3-4B"):
        rules.verify(dataclasses.replace(adapter, base_model="Qwen/Qwen3-4B"))


def test_weights_decide_over_names_where_both_sides_know_them(adapter: Adapter, rules: AdapterRules) -> None:
    known = dataclasses.replace(rules, base_names=frozenset({"tiny", "sha256:ab"}))
    for said in ("tiny", "tiny@sha256:ab", "elsewhere/tiny@sha256:ab"):
        known.verify(dataclasses.replace(adapter, base_model=said))
    rules.verify(dataclasses.replace(adapter, base_model="tiny@sha256:cd"))

    with pytest.raises(InvalidInput, match=r"'tiny@sha256:cd': this server has \['sha256:ab', 'tiny'\]"):
        known.verify(dataclasses.replace(adapter, base_model="tiny@sha256:cd"))


def test_the_change_of_weights_is_that_of_the_product(
    adapter: Adapter, model: Path, rules: AdapterRules
) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    weights = load_file(Path(adapter.path) / "adapter_model.safetensors")
    products = [
        2 * weights[name] @ weights[name.replace("lora_B", "lora_A")] for name in weights if "lora_B" in name
    ]
    largest = max(float(product.square().mean().sqrt()) for product in products)
    assert weight_change(Path(adapter.path)) == pytest.approx(largest)

    assert rules.must_differ(adapter)
    assert not dataclasses.replace(rules, precision=torch.finfo(torch.bfloat16).eps).must_differ(
        write_adapter(rules.root / "step", model, version=2, rank=4, scale=1e-5)
    )
    assert not rules.must_differ(write_adapter(rules.root / "none", model, version=2, rank=4, scale=0.0))


@pytest.mark.parametrize("path", ["/", "..", "v1/../../tiny", "/etc"])
def test_a_path_outside_the_root_is_refused(adapter: Adapter, rules: AdapterRules, path: str) -> None:
    with pytest.raises(InvalidInput, match="outside the root"):
        rules.verify(dataclasses.replace(adapter, path=path))


def test_a_link_out_of_the_root_is_refused(
    adapter: Adapter, rules: AdapterRules, model: Path, tmp_path: Path
) -> None:
    outside = write_adapter(tmp_path / "elsewhere", model, version=2, rank=4)
    (rules.root / "v2").symlink_to(tmp_path / "elsewhere")
    weights = rules.root / "v1" / "adapter_model.safetensors"
    weights.unlink()
    weights.symlink_to(tmp_path / "elsewhere" / "adapter_model.safetensors")

    with pytest.raises(InvalidInput, match="outside the root"):
        rules.verify(dataclasses.replace(outside, path=str(rules.root / "v2")))
    with pytest.raises(InvalidInput, match="resolves outside the root"):
        rules.verify(dataclasses.replace(adapter, version=outside.version))


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_file_is_named(adapter: Adapter, rules: AdapterRules, name: str) -> None:
    (rules.root / "v1" / name).unlink()

    with pytest.raises(InvalidInput, match=f"has no {name}"):
        rules.verify(adapter)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"r": 16}, "rank 16, at most 8"),
        ({"r": 0}, "r: .*got '0'"),
        ({"rank_pattern": {"q_proj": 32}}, "rank 32, at most 8"),
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head"),
        ({"target_modules": "all-linear"}, "all-linear"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias.*'all'"),
        ({"lora_bias": True}, "lora_bias"),
        ({"peft_type": "IA3"}, "IA3"),
    ],
)
def test_a_config_that_vllm_would_serve_differently_is_refused(
    model: Path, rules: AdapterRules, config: Mapping[str, Any], complaint: str
) -> None:
    adapter = write_adapter(rules.root / "bad", model, version=1, rank=4, config=config)

    with pytest.raises(InvalidInput, match=complaint):
        rules.verify(adapter)


def test_tensors_speak_louder_than_the_config(model: Path, rules: AdapterRules) -> None:
    adapter = write_adapter(rules.root / "bad", model, version=1, rank=16, config={"r": 4})

    with pytest.raises(InvalidInput, match="has rank 16"):
        rules.verify(adapter)


def test_a_tensor_of_the_head_is_refused(adapter: Adapter, rules: AdapterRules) -> None:
    weights = rules.root / "v1" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"self_attn.q_proj", b"self_attn.lm_hea"))

    with pytest.raises(InvalidInput, match=r"lm_hea\.lora_A"):
        rules.verify(adapter)


def test_weights_cut_short_are_refused(adapter: Adapter, rules: AdapterRules) -> None:
    weights = rules.root / "v1" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])

    with pytest.raises(InvalidInput, match="not a whole safetensors file"):
        rules.verify(adapter)


def test_other_bytes_than_announced_are_refused(adapter: Adapter, rules: AdapterRules) -> None:
    other = PolicyVersion(1, hashlib.sha256(b"").hexdigest())

    with pytest.raises(InvalidInput, match=f"has sha256 {adapter.version.sha256}, not '{other.sha256}'"):
        rules.verify(dataclasses.replace(adapter, version=other))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=200))
def test_any_bytes_are_refused_as_weights_not_crashed_on(
    adapter: Adapter, rules: AdapterRules, junk: bytes
) -> None:
    (rules.root / "v1" / "adapter_model.safetensors").write_bytes(junk)

    with pytest.raises(InvalidInput):
        rules.verify(adapter)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.recursive(st.none() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x)))
def test_any_json_is_refused_as_config_not_crashed_on(
    adapter: Adapter, rules: AdapterRules, junk: object
) -> None:
    (rules.root / "v1" / "adapter_config.json").write_text(json.dumps(junk))

    with pytest.raises(InvalidInput):
        rules.verify(adapter)


@pytest.mark.parametrize("path", ["v\0", "v" * 5000])
def test_a_path_that_no_file_can_have_is_refused(adapter: Adapter, rules: AdapterRules, path: str) -> None:
    with pytest.raises(InvalidInput, match="adapter path"):
        rules.verify(dataclasses.replace(adapter, path=path))


@pytest.mark.parametrize("header", [b"[]", b"3", b"[" * 100_000])
def test_a_header_that_is_no_table_is_refused(adapter: Adapter, rules: AdapterRules, header: bytes) -> None:
    weights = rules.root / "v1" / "adapter_model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header)

    with pytest.raises(InvalidInput, match="not a whole safetensors file"):
        rules.verify(adapter)
