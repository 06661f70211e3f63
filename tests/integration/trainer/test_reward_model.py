"""The reward model: what it learns, how it is measured, what it leaves behind."""

import json
import math
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rookery.config.finetune import RewardModelSettings
from rookery.errors import InvalidInput, SetupError
from services.trainer import merge
from services.trainer.examples.rows import TokenizedExample, collate_examples, pack_rows
from services.trainer.finetune.model import load_sequence_classifier
from services.trainer.merge import MergeSettings
from services.trainer.reward_model import training
from services.trainer.reward_model.report import ScoredPair, read_card, report_on
from tests.unit.trainer.preferences import write_pairs


def _settings(model: Path, data: Path, out: Path, **changes: object) -> RewardModelSettings:
    values = {"batch_size": 16, "steps": 30, "lr": 3e-3, "warmup_steps": 3, "precision": "fp32", "threads": 1}
    return RewardModelSettings(model=model, data=data, out=out, **(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_it_learns_what_tells_good_moves_from_bad(small_model: Path, tmp_path: Path, lora_rank: int) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", count=300)
    out = training.run(_settings(small_model, data, tmp_path / "out", lora_rank=lora_rank)).parent
    report = json.loads((out / "report.json").read_text())
    assert report["held_out"]["accuracy"] > 0.95
    assert report["pairs"]["train"] + report["pairs"]["held_out"] == 300
    assert sum(share["pairs"] for share in report["held_out"]["by_gap"]) == report["pairs"]["held_out"]
    assert (out / "calibration.png").read_bytes().startswith(b"\x89PNG")
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["eval_accuracy"] == pytest.approx(report["held_out"]["accuracy"])
    if lora_rank:
        with pytest.raises(InvalidInput, match="is the adapter of a reward model"):
            merge.run(MergeSettings(run=str(out), out=tmp_path / "merged"))


def test_a_score_is_that_of_transformers_classifier(small_model: Path) -> None:
    """So any server of such classifiers gives our rewards, but for the centre."""
    torch.manual_seed(0)
    model = load_sequence_classifier(small_model, dtype=torch.float32, pad_id=0).eval()
    packed = pack_rows(
        [TokenizedExample([5, 9], ([30, 31, 1], [40, 1])), TokenizedExample([7], ([22, 1], [23, 24, 1]))]
    )
    settings = _settings(small_model, small_model, small_model)
    with torch.no_grad():
        ours = training.RewardModelTask(model, settings, []).scores(collate_examples(packed))
        texts = [[*e.prompt_ids, *answer] for row in packed for e in row for answer in e.answers]
        theirs = [model(input_ids=torch.tensor([text])).logits.item() for text in texts]
    assert ours.tolist() == pytest.approx(theirs, abs=1e-5)


def test_a_model_that_lacks_weights_is_refused(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "part"
    shutil.copytree(small_model, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "layers.0." not in name}
    assert kept.keys() < weights.keys()
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SetupError, match=r"part' lacks weights .* 'model\.layers\.0\."):
        load_sequence_classifier(folder, dtype=torch.float32, pad_id=0)


def test_stopped_in_the_middle_it_ends_with_the_same_bytes(small_model: Path, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", count=60)
    how = {"steps": 6, "save_every": 2}
    whole = training.run(_settings(small_model, data, tmp_path / "whole", **how))
    settings = _settings(small_model, data, tmp_path / "cut", **how)
    sums = training.RewardModelTask.sums
    calls = iter(range(100))

    class KilledError(Exception):
        pass

    def killed(self: training.RewardModelTask, batch: object) -> object:
        if next(calls) == 3:
            raise KilledError
        return sums(self, batch)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(training.RewardModelTask, "sums", killed)
        training.run(settings)
    again = training.run(settings)
    assert (again / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert read_card(again).centre == read_card(whole).centre


def test_the_card_names_its_data_and_notices_other_weights(small_model: Path, tmp_path: Path) -> None:
    data = write_pairs(tmp_path / "pairs.jsonl", count=60)
    manifest = {"terms": {"recipe": {"style": "mover-squares"}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    folder = training.run(_settings(small_model, data, tmp_path / "out", steps=1))
    told = json.loads((folder / "reward_model.json").read_text())
    assert told["data"]["pairs"]["train"] > 0
    assert len(told["data"]["manifest_sha256"]) == len(told["data"]["sha256"]) == 64
    assert read_card(folder).style == "mover-squares"
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(SetupError, match=r"model.safetensors is not the file"):
        read_card(folder)
    with pytest.raises(SetupError, match="was not written by"):
        read_card(tmp_path)


def test_a_margin_asks_for_more_where_the_gap_is_wide(small_model: Path) -> None:
    torch.manual_seed(0)
    model = load_sequence_classifier(small_model, dtype=torch.float32, pad_id=0)
    batch = collate_examples(pack_rows([TokenizedExample([5, 9], ([30, 31, 1], [40, 1]), gap=0.5)]))
    losses = []
    for margin in (0.0, 2.0):
        settings = _settings(small_model, small_model, small_model, margin=margin)
        task = training.RewardModelTask(model, settings, [])
        chosen, rejected = task.scores(batch).tolist()
        losses.append(task.sums(batch)["loss"].item())
        expected = math.log1p(math.exp(-(chosen - rejected - margin * 0.5)))
        assert losses[-1] == pytest.approx(expected, rel=1e-5)
    assert losses[1] > losses[0]


def test_a_calibrated_model_has_no_calibration_error() -> None:
    rng = random.Random(0)
    measured = []
    for _ in range(40_000):
        difference = rng.gauss(0, 2)
        wins = rng.random() < 1 / (1 + math.exp(-difference))
        measured.append(ScoredPair(difference if wins else -difference, 0.0, gap=0.3))
    report = report_on(measured)
    assert report.calibration_error < 0.01
    sure = report_on([ScoredPair(3 * pair.chosen, 0.0, gap=0.3) for pair in measured])
    assert sure.accuracy == report.accuracy
    assert sure.calibration_error > 0.1
    assert sure.loss > report.loss


def test_measures_by_hand() -> None:
    report = report_on(
        [
            ScoredPair(2.0, 0.0, gap=0.07, origin="policy"),
            ScoredPair(0.0, 1.0, gap=0.3, origin="sampled"),
            ScoredPair(1.0, 1.0, gap=1.0, origin="sampled"),
        ]
    )
    assert report.accuracy == 0.5
    assert report.centre == pytest.approx((1.0 + 0.5 + 1.0) / 3)
    assert report.loss == pytest.approx(
        (math.log1p(math.exp(-2)) + 1 + math.log1p(math.exp(-1)) + math.log(2)) / 3
    )
    assert {share.name: (share.pairs, share.accuracy) for share in report.by_gap} == {
        "0.05-0.1": (1, 1.0),
        "0.2-0.4": (1, 0.0),
        "0.4-1": (1, 0.5),
    }
    assert {share.name: share.accuracy for share in report.by_origin} == {"policy": 1.0, "sampled": 0.25}
    assert [share.name for share in report.reliability] == ["0.50-0.55", "0.70-0.75", "0.85-0.90"]
