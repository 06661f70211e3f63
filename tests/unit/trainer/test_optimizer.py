"""Adam's state: kept as bytes and taken up again, in 32 bits and in 8, and moved about."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rookery.config.finetune import SftSettings
from rookery.errors import SetupError
from services.trainer.finetune import sft
from services.trainer.training import optimizer as adam
from tests.unit.trainer.contents import content


def weights() -> list:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape)) for shape in ((8192,), (64, 128), (3, 5))]


def move(optimizer, parameters: list, *, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


@pytest.mark.parametrize("bits", [32, 8])
def test_a_restored_state_goes_on_to_the_same_bytes(tmp_path: Path, bits: int) -> None:
    if bits == 8:
        pytest.importorskip("bitsandbytes")
    whole, halves = weights(), weights()
    optimizer = adam.build(whole, lr=1e-2, bits=bits)
    move(optimizer, whole, steps=range(4))
    first = adam.build(halves, lr=1e-2, bits=bits)
    move(first, halves, steps=range(2))
    (tmp_path / adam.FILE).write_bytes(content(adam.dump(first)))
    second = adam.build(halves, lr=1e-2, bits=bits)
    adam.restore(second, tmp_path)
    move(second, halves, steps=range(2, 4))
    assert all(torch.equal(one, other) for one, other in zip(whole, halves, strict=True))
    assert content(adam.dump(second)) == content(adam.dump(optimizer))


def test_eight_bits_take_a_quarter_and_go_nearly_the_same_way() -> None:
    pytest.importorskip("bitsandbytes")
    plain, small = weights()[:1], weights()[:1]
    began = plain[0].detach().clone()
    exact, rough = adam.build(plain, lr=1e-2), adam.build(small, lr=1e-2, bits=8)
    move(exact, plain, steps=range(10))
    move(rough, small, steps=range(10))
    assert len(content(adam.dump(rough))) < 0.35 * len(content(adam.dump(exact)))
    way, other = (side[0].detach() - began for side in (plain, small))
    assert torch.nn.functional.cosine_similarity(way, other, dim=0) > 0.98


def test_eight_bits_without_the_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'rookery\[bits8\]'"):
        adam.build(weights(), lr=1e-2, bits=8)


def test_commands_on_files_keep_moments_in_eight_bits_too(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "moves.jsonl"
    said = [{"role": "user", "content": "e2"}, {"role": "assistant", "content": "e2e4"}]
    data.write_text(json.dumps({"messages": said}) + "\n")

    def trained(bits: int, out: str) -> torch.Tensor:
        settings = SftSettings(
            model=tiny_model, data=data, out=tmp_path / out, adam_bits=bits, steps=3, batch_size=1,
            warmup_steps=0, precision="fp32", save_dtype="float32", threads=1, device="cpu",
        )  # fmt: skip
        weights = load_file(sft.run(settings) / "model.safetensors")
        return torch.cat([weights[name].flatten() for name in sorted(weights)])

    if importlib.util.find_spec("bitsandbytes"):
        began = load_file(tiny_model / "model.safetensors")
        start = torch.cat([began[name].flatten().float() for name in sorted(began)])
        way, other = trained(8, "small") - start, trained(32, "whole") - start
        assert not torch.equal(way, other)
        assert torch.nn.functional.cosine_similarity(way, other, dim=0) > 0.95
    monkeypatch.setattr(adam.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="adam_bits=8 needs bitsandbytes"):
        trained(8, "neither")


def test_there_is_nothing_to_offload_from_a_cpu() -> None:
    with pytest.raises(SetupError, match="offload"):
        adam.build(weights(), lr=1e-2, offload=True)


def test_moments_move_and_counts_stay() -> None:
    parameters = weights()
    optimizer = adam.build(parameters, lr=1e-2)
    move(optimizer, parameters, steps=range(1))
    adam.place_moments(optimizer, torch.device("meta"))
    for state in optimizer.state.values():
        assert state["exp_avg"].device.type == state["exp_avg_sq"].device.type == "meta"
        assert state["step"].device.type == "cpu"
