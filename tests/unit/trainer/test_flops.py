"""Useful work, counted against torch's own counter."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from rookery.config.trainer import TrainerSettings
from services.trainer.model.policy import Policy
from services.trainer.records import flops
from services.trainer.records.flops import PeakFlops, SpeedMeter, count_weights, step_flops
from tests.unit.trainer.groups import make_group


def settings_of(model: Path, tmp_path: Path) -> TrainerSettings:
    return TrainerSettings(model=model, run_dir=tmp_path, device="cpu", lora_rank=4)


def test_the_matrices_of_rook_tiny(tiny_model: Path, tmp_path: Path) -> None:
    """4 layers, width 128, MLP 384, 4 heads and 2 for keys of 32 each; LoRA of rank 4 on all seven."""
    policy = Policy(settings_of(tiny_model, tmp_path))
    shape = count_weights(policy.model)
    layer = 128 * 128 + 2 * 128 * 64 + 128 * 128 + 3 * 128 * 384
    lora = 4 * (4 * (128 + 128) // 2 + 2 * (128 + 64) + 3 * (128 + 384))
    assert (shape.frozen, shape.trained) == (4 * layer, 4 * lora)
    assert shape.head == policy.model.get_output_embeddings().weight.numel()
    assert (shape.head_trained, shape.attention) == (False, 4 * 128)


def test_work_agrees_with_torchs_counter(tiny_model: Path, tmp_path: Path) -> None:
    """One prompt without completions: torch counts attention without its mask, so half of it is less."""
    policy = Policy(settings_of(tiny_model, tmp_path))
    length = 64
    ids = torch.arange(length)[None] % 80
    with FlopCounterMode(display=False) as counter:
        policy.model.get_base_model().model(input_ids=ids).last_hidden_state.sum().backward()
    shape = count_weights(policy.model)
    ours = step_flops(shape, [(length, [])])
    matrices = length * (4 * shape.frozen + 6 * shape.trained)
    # The first layer's inputs need no gradient: its frozen share of a few per cent is not computed.
    assert 0.85 < counter.get_total_flops() / (matrices + 2 * (ours - matrices)) < 1.02


def test_a_longer_prompt_costs_every_completion_more() -> None:
    from services.trainer.records.flops import WeightCounts

    shape = WeightCounts(frozen=0, trained=0, head=10, head_trained=True, attention=1)
    # Two completions of 3 tokens, 2 of which are inputs: each sees the prompt, itself and what came before.
    seen = 4 * 5 / 2 + 2 * (2 * 4 + 3)
    assert step_flops(shape, [(4, [3, 3])]) == 12 * seen + 6 * 6 * 10


def test_completions_that_are_left_out_cost_nothing(tiny_model: Path, tmp_path: Path) -> None:
    group = make_group(1, finish_reason="length")
    prompt, lengths = len(group.prompt_token_ids), [len(trace.completion.token_ids) for trace in group.traces]
    settings = settings_of(tiny_model, tmp_path)
    policy = Policy(settings)
    shape = count_weights(policy.model)
    for masked, expected in ((True, lengths[1:]), (False, lengths)):
        meter = SpeedMeter(policy, settings.model_copy(update={"mask_truncated": masked}))
        row = meter.row([group], tokens=1, train_s=1.0)
        assert row["tflops"] == step_flops(shape, [(prompt, expected)]) / 1e12
    cut = replace(group, traces=group.traces[:1])
    assert SpeedMeter(policy, settings).row([cut], tokens=1, train_s=1.0)["tflops"] == 0.0


def test_a_cpu_is_measured() -> None:
    assert 1e8 < PeakFlops(torch.device("cpu"), torch.float32).flops() < 1e14


def test_a_measurement_that_a_neighbour_spoiled_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter([1e9, 5e9, 2e9])
    monkeypatch.setattr(flops, "_measured_flops", lambda device, dtype: next(measured))
    peak = PeakFlops(torch.device("cpu"), torch.float32)
    found = [peak.flops() for _ in range(30)]
    assert (found[9], found[10], found[29]) == (1e9, 5e9, 5e9)
