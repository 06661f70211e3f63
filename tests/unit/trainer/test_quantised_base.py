"""A base in 8 or 4 bits: smaller, nearly the same numbers, and what comes of it is the usual adapter."""

import gc
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import prepare_batch
from services.trainer.model import base_model
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.records.flops import count_weights
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group


@pytest.fixture(scope="module")
def bitsandbytes() -> Any:
    return pytest.importorskip("bitsandbytes")


def settings(model: Path, **given: Any) -> TrainerSettings:
    return TrainerSettings(model=model, run_dir=Path("nowhere"), device="cpu", **given)


@pytest.fixture(scope="module")
def whole(tiny_model: Path) -> Policy:
    return build_policy(settings(tiny_model))


@pytest.fixture(params=[8, 4])
def bits(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def small(bitsandbytes: Any, bits: int, tiny_model: Path, whole: Policy) -> Policy:
    """With the same adapter, one that has moved away from 0."""
    policy = build_policy(settings(tiny_model, base_bits=bits))
    with torch.no_grad():
        for index, (mine, theirs) in enumerate(zip(policy.parameters, whole.parameters, strict=True)):
            torch.manual_seed(index)
            mine.copy_(theirs.normal_(std=0.05))
    return policy


def groups() -> list:
    return [make_group(number, prompt_length=5 + number) for number in range(4)]


def gradient(policy: Policy) -> "torch.Tensor":
    """Of the log-probabilities' mean."""
    given = settings(Path(), row_tokens=64)
    rows = prepare_batch(groups(), version=1, settings=given, averages=None).rows
    policy.model.zero_grad()
    policy.score(collate(rows)).logprobs_N.mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters])


def test_linear_layers_are_integers_and_nothing_else_is(bitsandbytes: Any, bits: int, small: Policy) -> None:
    layer = {8: bitsandbytes.nn.Linear8bitLt, 4: bitsandbytes.nn.Linear4bit}[bits]
    integers = {n for n, p in small.model.named_parameters() if not p.is_floating_point()}
    layers = [name for name, module in small.model.named_modules() if isinstance(module, layer)]
    assert integers == {f"{name}.weight" for name in layers}
    assert len(layers) == 4 * 7
    assert type(small.model.get_output_embeddings()) is torch.nn.Linear
    others = {p.dtype for n, p in small.model.named_parameters() if n not in integers}
    assert others == {torch.float32}


def test_it_takes_so_many_bits_instead_of_32(small: Policy, bits: int, whole: Policy) -> None:
    def held(policy: Policy) -> int:
        layers = policy.model.get_base_model().base_model.layers
        frozen = [p for p in layers.parameters() if not p.requires_grad and p.ndim == 2]
        return sum(p.untyped_storage().nbytes() for p in frozen)

    assert held(small) == held(whole) * bits / 32
    assert count_weights(small.model) == count_weights(whole.model)


def test_nothing_of_the_whole_weights_stays_in_memory(
    bitsandbytes: Any, bits: int, tiny_model: Path, tmp_path: Path
) -> None:
    """A view of one norm in the mapped file would hold all of it."""
    folder = shutil.copytree(tiny_model, tmp_path / "alone")
    policy = build_policy(settings(folder, base_bits=bits))
    gc.collect()
    assert policy.model is not None
    assert str(folder) not in Path("/proc/self/maps").read_text()


def test_numbers_and_gradients_are_those_of_the_whole_base_within_rounding(
    small: Policy, bits: int, whole: Policy
) -> None:
    """Rows of 127 steps are off by 1 in 127 sqrt(12) of their largest number: about 1% of a product. The 16
    numbers of NF4 are some twenty times as far apart."""
    exact, rough = gradient(whole), gradient(small)
    distance = (rough - exact).norm() / exact.norm()
    assert 1e-4 < distance < {8: 0.03, 4: 0.4}[bits]


def test_a_step_moves_the_adapter_alone_and_the_commit_is_the_usual_one(small: Policy, whole: Policy) -> None:
    frozen = {n: p.detach().clone() for n, p in small.model.named_parameters() if not p.requires_grad}
    before = load(contents(small.version_files())["adapter_model.safetensors"])
    given = settings(Path(), row_tokens=64)
    optimizer = adam.build(small.parameters, lr=1e-3)
    train_step(small, optimizer, groups(), step=1, settings=given, state=RunningState())
    files, usual = contents(small.version_files()), contents(whole.version_files())
    after, theirs = (load(each["adapter_model.safetensors"]) for each in (files, usual))
    assert all(not torch.equal(after[name], before[name]) for name in after)
    assert {n: (t.shape, t.dtype) for n, t in after.items()} == {
        n: (t.shape, t.dtype) for n, t in theirs.items()
    }
    assert files["adapter_config.json"] == usual["adapter_config.json"]
    assert files.keys() == usual.keys()
    now = dict(small.model.named_parameters())
    assert all(torch.equal(value, now[name]) for name, value in frozen.items())


def test_it_is_refused_where_it_cannot_be(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"base_bits=4 needs bitsandbytes: pip install 'rookery\[bits8\]'"):
        build_policy(settings(tiny_model, base_bits=4))
    with pytest.raises(SetupError, match="base_bits: a GPT-2 is served merged"):
        build_policy(settings(write_gpt2(tmp_path), base_bits=8, lora_targets="c_attn"))
