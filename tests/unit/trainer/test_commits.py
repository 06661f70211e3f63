import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.errors import SetupError
from services.trainer.versions import commits

FILES = {"adapter_model.safetensors": b"weights", "adapter_config.json": b"{}", "optimizer.safetensors": b"m"}
PRINT = {"model": "tiny", "lora_rank": "16"}


def _write(root: Path, number: int, ledger: tuple[str, ...] = ()) -> commits.Commit:
    return commits.write(root, number=number, files=FILES, ledger=ledger, fingerprint=PRINT)


def test_the_latest_commit_is_read_back_whole(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    written = _write(tmp_path, 1, ("a", "b"))
    assert commits.latest(tmp_path, fingerprint=PRINT) == written
    assert written.folder.name == "policy-v000001"


def test_no_commit_is_no_error(tmp_path: Path) -> None:
    assert commits.latest(tmp_path, fingerprint=PRINT) is None


def test_a_torn_write_is_invisible(tmp_path: Path) -> None:
    kept = _write(tmp_path, 0)
    torn = tmp_path / ".policy-v000001.tmp"
    torn.mkdir()
    (torn / "adapter_model.safetensors").write_bytes(b"wei")
    assert commits.latest(tmp_path, fingerprint=PRINT) == kept
    assert _write(tmp_path, 1).version.number == 1


def test_other_settings_are_named(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    with pytest.raises(SetupError, match="lora_rank was '16', is '8'"):
        commits.latest(tmp_path, fingerprint={**PRINT, "lora_rank": "8"})


def _cut(folder: Path) -> None:
    (folder / "state.json").write_text('{"state_ver')


def _flip(folder: Path) -> None:
    (folder / "adapter_model.safetensors").write_bytes(b"weighs?")


def _unweigh(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


def _forget(folder: Path) -> None:
    (folder / "optimizer.safetensors").unlink()


def _age(folder: Path) -> None:
    (folder / "state.json").write_text('{"state_version": 1}')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, "state.json: JSONDecodeError"),
        (_flip, "damaged: its SHA-256 is"),
        (_unweigh, "lacks its weights"),
        (_forget, "lacks optimizer.safetensors"),
        (_age, "its format is 1, this trainer's 2"),
    ],
)
def test_a_damaged_commit_is_not_resumed(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(_write(tmp_path, 3).folder)
    with pytest.raises(SetupError, match=said):
        commits.latest(tmp_path, fingerprint=PRINT)


def test_what_is_no_number_is_never_committed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        commits.write(
            tmp_path,
            number=0,
            files=FILES,
            ledger=(),
            fingerprint=PRINT,
            learner={"kl_coefficient": math.nan},
        )
    assert commits.latest(tmp_path, fingerprint=PRINT) is None


def test_a_version_is_never_overwritten(tmp_path: Path) -> None:
    _write(tmp_path, 4)
    with pytest.raises(SetupError, match="two trainers"):
        _write(tmp_path, 4)


def test_the_ledger_is_bounded(tmp_path: Path) -> None:
    ids = tuple(str(i) for i in range(20_000))
    commit = _write(tmp_path, 1, ids)
    assert commit.ledger == ids[-len(commit.ledger) :]
    assert (
        len(json.loads((commit.folder / "state.json").read_text())["ledger"]) == len(commit.ledger) < 20_000
    )


def test_pruning_takes_what_a_kill_left(tmp_path: Path) -> None:
    for number in range(30):
        _write(tmp_path, number)
        if number % 3 == 0:  # otherwise killed between the commit and here
            commits.prune(tmp_path, newest=number, keep=9)
    commits.prune(tmp_path, newest=29, keep=5)
    assert {int(folder.name[-6:]) for folder in tmp_path.glob("policy-v*")} == {0, *range(25, 30)}
    held = sorted(path.parent.name[-2:] for path in tmp_path.glob("*/optimizer.safetensors"))
    assert held == ["28", "29"]


def test_pruning_keeps_the_newest_the_first_and_the_milestones(tmp_path: Path) -> None:
    for number in range(130):
        _write(tmp_path, number)
        commits.prune(tmp_path, newest=number, keep=20)
    left = {int(folder.name[-6:]) for folder in tmp_path.glob("policy-v*")}
    assert left == {0, 100, *range(110, 130)}
    assert (tmp_path / "policy-v000129" / "optimizer.safetensors").exists()
    assert not (tmp_path / "policy-v000120" / "optimizer.safetensors").exists()
