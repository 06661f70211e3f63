"""`rookery plan`: its arithmetic, its points, and the load of Redis."""

import json
import random
import sys
from pathlib import Path
from statistics import fmean

import pytest

from launcher.capacity import PAUSE_S, CapacitySettings, RedisCosts, plan, predict, redis_load, saturation
from launcher.memory import needs_of
from rookery.errors import SetupError
from rookery.settings import read_preset
from tests.conftest import ROOT
from tests.hub import write_snapshot


def predicted(**settings: object) -> dict[str, float]:
    return predict(CapacitySettings(**settings))  # type: ignore[arg-type, return-value]


def test_the_slower_side_decides() -> None:
    points = {"generation_tokens_per_s": 1000, "training_tokens_per_s": 2000, "overhead_s": 1.0}
    points |= {"batch_groups": 10, "group_size": 4, "tokens": 100, "prompt_tokens": 0}
    slow = predicted(gpus=2, **points)
    assert (slow["seconds a step"], slow["limited by"]) == (4.0, "generation")
    assert (slow["samples/s"], slow["groups in traces"]) == (10.0, 10)
    fast = predicted(gpus=5, **points)
    assert (fast["seconds a step"], fast["limited by"]) == (3.0, "training")
    assert fast["groups in traces"] == 20, "a batch in training, and one that is ready"
    assert fast["groups in traces, at most"] == 30
    served = predicted(gpus=5, adapter_mb=30, **points)
    assert served["adapters, MB/s from the trainer"] == 30 * 4 / 3
    searched = predicted(gpus=2, nodes=2000, engine_nodes_per_s=1000, **points)
    assert searched["limited by"] == "Stockfish"
    assert searched["seconds a step"] == 10 * 5 * 2 / 2
    assert searched["engine cores busy"] == 2
    alone = predicted(gpus=1, **points)
    assert (alone["seconds a step"], alone["limited by"]) == (7.0, "generation and training in turns")


def test_without_gpus_all_share_the_cores() -> None:
    points = {"generation_tokens_per_s": 1000, "training_tokens_per_s": 2000, "overhead_s": 0.0}
    points |= {"batch_groups": 10, "group_size": 4, "tokens": 100, "prompt_tokens": 0, "handling_ms": 25.0}
    points |= {"nodes": 1000, "engine_nodes_per_s": 50_000}
    shared = predicted(gpus=0, cores=2, **points)
    assert (shared["seconds a step"], shared["limited by"]) == ((4 + 2 + 1 + 1) / 2, "the cores")
    assert predicted(gpus=0, cores=2, iteration_ms=10, **points)["seconds a step"] == (4 + 1 + 2 + 1 + 1) / 2
    many = predicted(gpus=0, cores=100, **points)
    assert (many["seconds a step"], many["limited by"]) == (2.0, "training"), "it has one core at most"


def test_prices_count_per_sample() -> None:
    found = predicted(gpus=4, gpu_hour=3.0, core_hour=0.5, cores=4)
    assert found["cost an hour"] == 14.0
    assert found["cost of a million samples"] == pytest.approx(14 / 3600 / found["samples/s"] * 1e6)


def test_a_run_gives_its_points_and_flags_win(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    row = {"step": 1, "completions": 40, "completion_length": 20.0, "groups": 10, "prompt_length": 20.0}
    row |= {"train_s": 2.0, "commit_s": 0.1, "settle_s": 0.2, "publish_s": 0.3}
    cold = row | {"train_s": 99.0}
    lines = [json.dumps((cold if step <= 5 else row) | {"step": step}) for step in range(1, 9)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    points = CapacitySettings(like=tmp_path).points()
    assert points["training_tokens_per_s"] == pytest.approx(500.0)
    assert points["overhead_s"] == pytest.approx(0.6)
    assert CapacitySettings(like=tmp_path, overhead_s=0.0).points()["overhead_s"] == 0.0
    assert CapacitySettings(gpus=0).points()["generation_tokens_per_s"] == 3900.0
    assert "1 is assumed" in caplog.text, "an older run"
    caplog.clear()
    lines = [json.dumps(json.loads(line) | {"devices": 4.0}) for line in lines]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert CapacitySettings(like=tmp_path).points()["training_tokens_per_s"] == pytest.approx(125.0)
    assert not caplog.text
    (tmp_path / "metrics.jsonl").write_text(lines[0] + "\n")
    for folder, said in ((tmp_path, "no more than 5 steps"), (tmp_path / "no", "no run '/.*/no'")):
        with pytest.raises(SetupError, match=said):
            CapacitySettings(like=folder).points()


def test_a_gpu_must_be_left_to_serve() -> None:
    with pytest.raises(SetupError, match="--gpus 2 --training-gpus 2"):
        predicted(gpus=2, training_gpus=2)
    with pytest.raises(SetupError, match="--gpus 1 --training-gpus 2"):
        predicted(gpus=1, training_gpus=2)


def test_every_worker_adds_its_groups_and_looks() -> None:
    costs = RedisCosts(look_s=30e-6, group_s=150e-6)
    ten, hundred = (redis_load(n, in_flight=8, generation_s=1.0, costs=costs) for n in (10, 100))
    assert (ten.groups_per_s, hundred.groups_per_s) == (80.0, 800.0)
    assert hundred.busy == pytest.approx(10 * ten.busy)
    looks = (ten.busy - 80 * costs.group_s) / costs.look_s
    rng = random.Random(0)
    pauses = [min(PAUSE_S, rng.expovariate(8.0)) for _ in range(100_000)]
    assert looks == pytest.approx(10 / fmean(pauses), rel=0.01)
    assert "with 600 workers, at 4,798 groups/s" in saturation(hundred)


def test_idle_workers_look_as_often_as_they_do() -> None:
    load = redis_load(4, in_flight=1, generation_s=1e9, costs=RedisCosts(look_s=1e-3, group_s=1e-3))
    assert load.busy == pytest.approx(4 / PAUSE_S * 1e-3)


def test_a_saturated_redis_gives_no_more_groups() -> None:
    costs = RedisCosts(look_s=1e-3, group_s=4e-3)
    fifty, many = (redis_load(n, in_flight=8, generation_s=1.0, costs=costs) for n in (50, 200))
    assert fifty.busy == many.busy == 1.0
    assert fifty.groups_per_s == pytest.approx(many.groups_per_s)
    assert many.groups_per_s <= 1 / costs.group_s


def test_it_prints_points_prediction_and_load(capsys: pytest.CaptureFixture[str]) -> None:
    settings = CapacitySettings.parse(["--gpus", "8", "--tokens", "64", "--nodes", "2000"], prog="plan")
    assert plan(settings) == 0
    said = capsys.readouterr().out
    for part in ("training_tokens_per_s", "samples/s", "engine cores", "1000", "saturated (90% busy) with"):
        assert part in said


SMOLLM2 = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "model_type": "llama",
}  # fmt: skip


QWEN3 = {
    "model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8,
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_4B = QWEN3 | {
    "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
}  # fmt: skip
QWEN3_06B = QWEN3 | {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "model", "config"),
    [("chess-gpt", "Qwen/Qwen3-4B", QWEN3_4B), ("qwen3-0.6b", "Qwen/Qwen3-0.6B", QWEN3_06B)],
)
def test_the_tables_of_the_presets_in_the_docs_are_what_plan_prints(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    preset: str,
    model: str,
    config: dict[str, object],
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    write_snapshot(tmp_path, model, config)
    flags = ["--gpu-memory", "16", "--gpu-memory", "24", "--gpu-memory", "48", "--gpu-memory", "80"]
    assert plan(CapacitySettings.parse(["--preset", preset, *flags], prog="plan")) == 0
    printed = capsys.readouterr().out
    table = printed[printed.index(f"memory of {model}") :]
    assert table in (ROOT / "launcher" / "README.md").read_text()
    used = read_preset(preset)
    assert needs_of(config).kv * used["inference"]["max_model_len"] < 0.3 * (1 << 30)
    row = next(line for line in table.splitlines() if line.startswith("  24 GiB"))
    assert used["trainer"].get("micro_batch_tokens", 0) < int(row.split()[-1].replace(",", ""))


def test_the_memory_of_a_model_is_computed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs = needs_of(SMOLLM2)
    assert needs.activations * 2 == pytest.approx(1.73 * (1 << 20), rel=0.01), "as measured in float32"
    assert needs.kv == 2 * 2 * 30 * 3 * 64
    assert needs.adapter == 4_884_480, "of rank 16, as PEFT counts them"
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))
    assert plan(CapacitySettings.parse(["--model", str(tmp_path), "--gpu-memory", "2"], prog="plan")) == 0
    printed = capsys.readouterr().out
    assert "134 million weights (computed, not measured)" in printed
    assert printed.splitlines()[-1].split() == ["2", "GiB", *["does", "not", "fit"] * 5]
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(SetupError, match="cannot compute the memory of a 'mamba'"):
        plan(CapacitySettings(model=str(tmp_path)))
