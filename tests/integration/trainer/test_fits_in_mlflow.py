"""What `sft`, `reward-model` and `dpo` leave in a real MLflow: figures, the model, what made it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.config.finetune import DpoSettings, RewardModelSettings, SftSettings
from rookery.mlflow_run import source_tags
from tests.unit.trainer.preferences import write_pairs

pytest.importorskip("mlflow")

from services.trainer.finetune import dpo, sft
from services.trainer.reward_model import training
from services.trainer.tiny import build_tiny

COMMANDS: dict[str, tuple[Any, Any]] = {
    "sft": (SftSettings, sft),
    "dpo": (DpoSettings, dpo),
    "reward-model": (RewardModelSettings, training),
}

MODEL = {"config.json", "model.safetensors", "tokenizer.json"}
ADAPTER = {"adapter_config.json", "adapter_model.safetensors"}


@pytest.fixture
def how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    model = build_tiny(tmp_path / "tiny", seed=1, hidden_size=32, layers=1, intermediate_size=32)
    data = write_pairs(tmp_path / "pairs.jsonl", count=40)
    shown = {"steps": 2, "batch_size": 4, "precision": "fp32", "threads": 1, "mlflow": True}
    return {"model": model, "data": data, "out": tmp_path / "run", **shown}


def _sft_data(path: Path) -> Path:
    rows = map(json.loads, path.read_text().splitlines())
    chats = [{"messages": [*row["prompt"], *row["chosen"]]} for row in rows]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return path


@pytest.mark.parametrize(
    ("command", "lora_rank", "expected"),
    [
        ("sft", 0, {"model": MODEL}),
        ("dpo", 2, {"model": MODEL, "adapter": ADAPTER}),
        ("reward-model", 0, {"model": {*MODEL, "reward_model.json"}, "": {"report.json", "calibration.png"}}),
    ],
)
def test_the_model_and_its_figures_are_kept(
    tmp_path: Path, how: dict[str, Any], command: str, lora_rank: int, expected: dict[str, set[str]]
) -> None:
    from mlflow import MlflowClient

    settings, module = COMMANDS[command]
    if command == "sft":
        _sft_data(how["data"])
    module.run(settings(**how, lora_rank=lora_rank))
    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    run_id = json.loads((tmp_path / "run" / "mlflow.json").read_text())["run_id"]
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(run_id, "loss")) == 2
    assert source_tags().items() <= run.data.tags.items()

    def kept(folder: str) -> dict[str, str]:
        found = client.list_artifacts(run_id, folder)
        return {Path(file.path).name: client.download_artifacts(run_id, file.path) for file in found}

    assert {"metrics.jsonl", "curves.png"} <= kept("").keys()
    for folder, names in expected.items():
        assert names <= kept(folder).keys()
    weights = Path(kept("model")["model.safetensors"]).read_bytes()
    assert weights == (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
