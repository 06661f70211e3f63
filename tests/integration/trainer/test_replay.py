"""`rookery replay`: a recorded run, trained on again by real processes, has the same bytes."""

import contextlib
import io
from pathlib import Path

import pytest
import redis
from rich.console import Console

from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from launcher.replay import ReplaySettings, compare_versions, replay, versions
from rookery.codec import decode_group
from rookery.errors import InvalidInput, RookeryError
from services.trainer.tiny import build_tiny
from tests.integration.trainer.runs import BATCH, Run, events
from tests.unit.trainer.groups import make_group

pytestmark = pytest.mark.redis


STEPS = 3


def archive(run: Run, folder: Path) -> str:
    """The groups that wait in the stream, as the archiver writes them."""
    with contextlib.closing(redis.Redis.from_url(run.url)) as client:
        entries = client.xrange(run.streams.redis.key("traces"))
    groups = [(entry.decode(), decode_group(fields[b"data"])) for entry, fields in entries]
    TraceArchive(open_folder(str(folder))).write(run.name, groups, first=groups[0][0], last=groups[-1][0])
    return str(folder)


def test_a_redis_that_does_not_start_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "adapters" / "policy-v000001" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"number": 1, "sha256": ""}')
    (tmp_path / "trainer.toml").write_text("[trainer]\nbatch_groups = 4")
    monkeypatch.setattr("launcher.replay.redis_argv", lambda folder: ("sh", "-c", "echo no memory; exit 1"))
    flags = [str(tmp_path)]
    with pytest.raises(RookeryError, match=r"redis does not answer: .*: no memory"):
        replay(ReplaySettings.parse(flags, prog="rookery replay"), Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("adapters/policy-v000001/state.json", '{"number": 1}', r"state.json:1: .*'{\"number\": 1}'"),
        ("adapters/policy-v000001/state.json", '{"number": 1,\n"sha256"', r"state.json:2: "),
        ("adapters/policy-v000001/state.json", "[]", r"state.json:1: "),
        ("trainer.toml", "[trainer]\nlr = 0.1", r"trainer.toml: no batch_groups in \[trainer\]: .*lr"),
        ("trainer.toml", "[trainer", r"trainer.toml: no batch_groups"),
    ],
)
def test_a_damaged_file_of_the_run_is_named_and_quoted(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    state = tmp_path / "adapters" / "policy-v000001" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"number": 1, "sha256": ""}')
    (tmp_path / "trainer.toml").write_text("[trainer]\nbatch_groups = 4")
    (tmp_path / file).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        replay(ReplaySettings.parse([str(tmp_path)], prog="rookery replay"), Console(file=io.StringIO()))
    assert not (tmp_path / "replay").exists()


def test_a_recorded_run_gives_the_same_bytes_again_whatever_the_environment_says(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(file=io.StringIO(), width=200)
    with events() as running:
        run = Run(
            redis_url, "one", tmp_path / "one", build_tiny(tmp_path / "tiny", seed=3, layers=2), running
        )
        run.add([make_group(number, vocabulary=90) for number in range(STEPS * BATCH)])
        recorded = archive(run, tmp_path / "archive")
        run.add([make_group(STEPS * BATCH + number, vocabulary=90) for number in range(BATCH)])
        run.settings(STEPS + 1, lr_schedule="cosine").write_resolved(run.folder)
        run.train(STEPS + 1, lr_schedule="cosine")
    (tmp_path / "other.toml").write_text("[data_republish]\nlimit = 1")
    variables = {"TRAINER_LR": "0.5", "trainer_seed": "9", "WORLD_SIZE": "2"}
    for name, value in {**variables, "ROOKERY_CONFIG": str(tmp_path / "other.toml")}.items():
        monkeypatch.setenv(name, value)
    flags = [str(run.folder), "--archive", recorded]
    with pytest.raises(RookeryError, match=f"the archive ends after step {STEPS} of {STEPS + 1}"):
        replay(ReplaySettings.parse(flags, prog="rookery replay"), console)
    for number in range(STEPS + 1):
        again = run.folder / "replay" / "adapters" / run.version(number).name / "adapter_model.safetensors"
        assert again.read_bytes() == run.adapter(number)

    replayed = versions(run.folder / "replay")
    assert compare_versions(versions(run.folder), replayed, console) == 0
    shorter = [*flags, "--steps", str(STEPS - 1), "--out", str(tmp_path / "shorter")]
    assert replay(ReplaySettings.parse(shorter, prog="rookery replay"), console) == 0, "the learning rates"
    assert compare_versions({**replayed, 2: "0" * 64}, replayed, console) == 1
    assert compare_versions({0: replayed[0], 81: "0" * 64}, replayed, console) == 1, (
        "no trained version is in both"
    )
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("identical") >= 3 * STEPS + 1
    assert "version 2: DIFFERS" in said
