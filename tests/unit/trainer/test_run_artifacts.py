"""Which files of a run's folder are kept elsewhere."""

from pathlib import Path

from services.trainer.records.tracking import run_artifacts


def _make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def _named(folder: Path) -> set[str]:
    return {f"{place or ''}/{path.name}" for path, place in run_artifacts(folder)}


def test_a_whole_model_is_kept_with_its_value_head_and_without_moments(tmp_path: Path) -> None:
    newest = (
        "model.safetensors",
        "config.json",
        "value_head.safetensors",
        "optimizer.safetensors",
        "state.json",
    )
    _make(tmp_path, *(f"adapters/policy-v000002/{name}" for name in newest), "trainer.toml")
    _make(tmp_path, "adapters/policy-v000001/model.safetensors", "adapters/lock")
    expected = {"model/model.safetensors", "model/config.json", "model/value_head.safetensors"}
    assert _named(tmp_path) == {"/trainer.toml", *expected}


def test_an_adapter_and_the_model_it_was_merged_into_are_kept_apart(tmp_path: Path) -> None:
    _make(tmp_path, "adapters/policy-v000001/adapter_model.safetensors", "model/model.safetensors")
    _make(tmp_path, "report.json", "calibration.png", "checkpoint/model.safetensors")
    made = {"adapter/adapter_model.safetensors", "model/model.safetensors"}
    assert _named(tmp_path) == {"/report.json", "/calibration.png", *made}
