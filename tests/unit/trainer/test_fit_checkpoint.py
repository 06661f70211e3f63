"""What a run on a file leaves for going on: durable, refused when it is damaged or another's."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from rookery.config.finetune import SftSettings
from rookery.errors import InvalidInput
from services.trainer.finetune import output, sft
from services.trainer.finetune.output import MetricsLog
from services.trainer.tiny import build_tiny


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small")
    return build_tiny(out, seed=1, hidden_size=32, layers=1, intermediate_size=32)


def _write(path: Path, *moves: str) -> Path:
    for_each = [
        [{"role": "user", "content": "8/8/8 w"}, {"role": "assistant", "content": move}] for move in moves
    ]
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in for_each))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return _write(tmp_path / "moves.jsonl", "e2e4", "d2d4", "g1f3", "c2c4")


def _settings(model: Path, data: Path, out: Path) -> SftSettings:
    return SftSettings(
        model=model,
        data=str(data),
        out=out,
        steps=4,
        batch_size=2,
        warmup_steps=1,
        precision="fp32",
        threads=1,
        micro_batch_tokens=999,
    )


def _stopped(settings: SftSettings, monkeypatch: pytest.MonkeyPatch, number: int) -> int | str | None:
    """Exit status of a run that gets a signal in its second step."""
    sums, calls = sft.SftTask.sums, iter(range(100))

    def struck(self: sft.SftTask, laid: object) -> object:
        if next(calls) == 1:
            os.kill(os.getpid(), number)
        return sums(self, laid)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sft.SftTask, "sums", struck)
        sft.run(settings)
    return ended.value.code


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_after_its_step_and_it_goes_on_from_there(
    small_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    settings = _settings(small_model, data, tmp_path / "cut")
    assert _stopped(settings, monkeypatch, number) == status
    assert json.loads((settings.out / "checkpoint" / "state.json").read_text())["step"] == 2
    resumed = sft.run(settings)
    whole = sft.run(_settings(small_model, data, tmp_path / "whole"))
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [_halve, Path.unlink])
@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    weights = output.trained_parameters(model)
    output.save_checkpoint(tmp_path, weights, optimizer, step=1, fingerprint={})
    assert output.restore_checkpoint(tmp_path, weights, optimizer) == 1
    damage(tmp_path / "checkpoint" / name)
    with pytest.raises(InvalidInput, match=f"checkpoint/{name} is missing or damaged"):
        output.restore_checkpoint(tmp_path, weights, optimizer)


def test_a_state_without_its_step_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "state.json").write_text('{"fingerprint": {}}')
    optimizer = torch.optim.AdamW([torch.zeros(1)])
    with pytest.raises(InvalidInput, match=r"state.json lacks step"):
        output.restore_checkpoint(tmp_path, {}, optimizer)


def test_all_of_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    model = torch.nn.Linear(2, 3)
    output.save_checkpoint(
        tmp_path,
        output.trained_parameters(model),
        torch.optim.AdamW(model.parameters()),
        step=1,
        fingerprint={},
    )
    making = tmp_path / "checkpoint.tmp"
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    assert sorted(synced[:3]) == [str(making / name) for name in names]
    assert synced[3:] == [str(making), str(tmp_path)]


def test_a_row_that_is_no_steps_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"loss": 1.0}\n{"step": 3, "lo')
    with pytest.raises(InvalidInput, match=r"metrics.jsonl:2: not the row of a step"):
        MetricsLog("sft", tmp_path, start=1, steps=3)


def test_out_may_not_be_a_file(small_model: Path, data: Path) -> None:
    with pytest.raises(ValidationError, match=f"'{data}' is not a folder"):
        _settings(small_model, data, data)


def test_a_path_typed_otherwise_is_the_same_run_and_other_data_are_another(
    small_model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(small_model, data, tmp_path / "out")
    _stopped(settings, monkeypatch, signal.SIGINT)
    monkeypatch.chdir(small_model.parent)
    moved = data.rename(tmp_path / "renamed.jsonl")
    again = _settings(Path(small_model.name), moved, tmp_path / "out")
    kept = {path: path.read_bytes() for path in settings.out.rglob("*") if path.is_file()}
    assert again.fingerprint() == settings.fingerprint()
    _write(moved, "e2e4", "d2d4", "g1f3", "a2a3")
    with (
        monkeypatch.context() as patch,
        pytest.raises(InvalidInput, match=r"made with other settings \(data was 'SHA-256 [0-9a-f]+', is"),
    ):
        patch.setattr(sft, "track", None)  # no tracker is told
        sft.run(again)
    assert {path: path.read_bytes() for path in settings.out.rglob("*") if path.is_file()} == kept
    _write(moved, "e2e4", "d2d4", "g1f3", "c2c4")
    assert (sft.run(again) / "model.safetensors").exists()
