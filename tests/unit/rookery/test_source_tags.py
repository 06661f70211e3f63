"""What is said of the code that made a run."""

import subprocess
from pathlib import Path

import pytest

import rookery
from rookery import mlflow_run


def _git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_commit_is_named_and_whether_files_have_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_run, "_ROOT", tmp_path)
    _git(tmp_path, "init", "-q")
    (tmp_path / "x").write_text("1")
    _git(tmp_path, "add", "x")
    _git(tmp_path, "commit", "-q", "-m", "x")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    version = {"rookery.version": rookery.__version__}
    assert mlflow_run.source_tags() == {**version, "mlflow.source.git.commit": commit}
    (tmp_path / "x").write_text("2")
    assert mlflow_run.source_tags() == {**version, "mlflow.source.git.commit": f"{commit}-dirty"}


def test_a_repository_around_rookery_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tmp_path, "init", "-q")
    inside = tmp_path / "venv"
    inside.mkdir()
    monkeypatch.setattr(mlflow_run, "_ROOT", inside)
    assert set(mlflow_run.source_tags()) == {"rookery.version"}
