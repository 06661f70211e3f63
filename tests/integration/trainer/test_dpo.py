"""DPO on a real model: its numbers from plain forward passes, what it learns, what it leaves behind."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rookery.config.finetune import DpoSettings
from rookery.hub import MANIFEST_FILE, identity
from services.trainer.examples.rows import TokenizedExample, collate_examples, pack_rows
from services.trainer.finetune import dpo
from services.trainer.finetune.model import prepare_model
from tests.unit.trainer.preferences import write_pairs


def _settings(model: Path, data: Path, out: Path, **changes: object) -> DpoSettings:
    values = {"batch_size": 16, "steps": 20, "lr": 5e-3, "warmup_steps": 2, "precision": "fp32", "threads": 1}
    values |= {"save_dtype": "float32", "lora_rank": 4}
    return DpoSettings(model=model, data=data, out=out, **(values | changes))  # type: ignore[arg-type]


def _sum_logprob(model: torch.nn.Module, prompt: list[int], answer: list[int]) -> torch.Tensor:
    logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0]
    logs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return logs.gather(1, torch.tensor(answer)[:, None]).sum()


def test_the_loss_is_that_of_plain_forward_passes(small_model: Path) -> None:
    settings = _settings(small_model, small_model, small_model, beta=0.7)
    base = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    model = prepare_model(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32), settings)
    torch.manual_seed(5)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    examples = [
        TokenizedExample([5, 9], ([30, 31, 1], [40, 1])),
        TokenizedExample([7, 8, 9], ([22, 1], [23, 24, 1])),
    ]
    with torch.no_grad():
        found = dpo.DpoTask(model, settings, []).sums(collate_examples(pack_rows(examples, row_tokens=64)))
        expected = torch.zeros(())
        for example in examples:
            logs = [
                torch.stack([_sum_logprob(m, example.prompt_ids, answer) for answer in example.answers])
                for m in (model, base)
            ]
            expected += dpo.dpo_loss(dpo.dpo_margin(*logs[0], *logs[1], beta=0.7))
    assert found["loss"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert abs(found["margin"].item()) > 0.01


def test_a_fresh_adapter_is_its_own_reference(small_model: Path) -> None:
    settings = _settings(small_model, small_model, small_model)
    model = prepare_model(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32), settings)
    sums = dpo.DpoTask(model, settings, []).sums(
        collate_examples(pack_rows([TokenizedExample([5], ([6, 7], [8]))]))
    )
    assert sums["margin"].item() == 0.0
    assert sums["loss"].item() == pytest.approx(0.693147, abs=1e-6)


def test_it_comes_to_prefer_the_chosen_and_leaves_an_adapter_for_the_servers(
    small_model: Path, tmp_path: Path
) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", count=200)
    out = dpo.run(_settings(small_model, data, tmp_path / "out")).parent
    rows_ = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert rows_[-1]["eval_accuracy"] > 0.95
    assert rows_[-1]["eval_loss"] < 0.5 < rows_[0]["loss"]
    adapter = out / "adapters" / "policy-v000001"
    assert {path.name for path in adapter.iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "state.json",
        "SHA256SUMS",
    }
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        small_model
    )
    state = json.loads((adapter / "state.json").read_text())
    assert state["fingerprint"]["model"] == identity(str(small_model)), "`rookery merge` compares it"
    manifest = json.loads((out / "model" / MANIFEST_FILE).read_text())
    assert (manifest["box"], manifest["answer_tokens"]) == ("uci", 5)
    moved = AutoModelForCausalLM.from_pretrained(out / "model", dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    assert not torch.equal(moved.model.layers[0].mlp.up_proj.weight, base.model.layers[0].mlp.up_proj.weight)
    assert torch.equal(moved.model.embed_tokens.weight, base.model.embed_tokens.weight)
