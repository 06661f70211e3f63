import hashlib
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

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
    assert commits.to_resume(tmp_path, fingerprint=PRINT) == written
    assert written.folder.name == "policy-v000001"


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = hashlib.file_digest

    def counting(file: BinaryIO, name: str) -> object:
        read.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counting)
    _write(tmp_path, 0)
    for _ in range(3):
        commits.to_resume(tmp_path, fingerprint=PRINT)
    assert sorted(read) == sorted([*FILES, commits.STATE])
    _flip(tmp_path / "policy-v000000")
    with pytest.raises(SetupError, match="damaged"):
        commits.to_resume(tmp_path, fingerprint=PRINT)


def test_a_committed_version_is_found_and_checked(tmp_path: Path) -> None:
    for number in (0, 9, 10):
        _write(tmp_path / "adapters", number)
    assert commits.committed(tmp_path / "adapters")[0].name == "policy-v000010"
    folder, state = commits.committed(tmp_path / "adapters", 9)
    assert (folder.name, state["number"]) == ("policy-v000009", 9)
    with pytest.raises(SetupError, match=r"no version 7 in .*: it has 0, 9, 10"):
        commits.committed(tmp_path / "adapters", 7)
    with pytest.raises(SetupError, match=r"no run in .*other"):
        commits.committed(tmp_path / "other" / "adapters")
    sums = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in sums if "adapter_model" not in line))
    (folder / "adapter_model.safetensors").write_bytes(b"others")
    with pytest.raises(SetupError, match=r"policy-v000009 has other weights than state\.json names"):
        commits.committed(tmp_path / "adapters", 9)
    _flip(tmp_path / "adapters" / "policy-v000010")
    with pytest.raises(SetupError, match="damaged"):
        commits.committed(tmp_path / "adapters")


def test_no_commit_is_no_error(tmp_path: Path) -> None:
    assert commits.to_resume(tmp_path, fingerprint=PRINT) is None


def test_a_torn_write_is_invisible(tmp_path: Path) -> None:
    kept = _write(tmp_path, 0)
    torn = tmp_path / ".policy-v000001.tmp"
    torn.mkdir()
    (torn / "adapter_model.safetensors").write_bytes(b"wei")
    assert commits.to_resume(tmp_path, fingerprint=PRINT) == kept
    assert _write(tmp_path, 1).version.number == 1


def test_other_settings_are_named(tmp_path: Path) -> None:
    _write(tmp_path, 0)
    with pytest.raises(SetupError, match="lora_rank was '16', is '8'"):
        commits.to_resume(tmp_path, fingerprint={**PRINT, "lora_rank": "8"})


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


def _unlist(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()


def _rot(folder: Path) -> None:
    (folder / "optimizer.safetensors").write_bytes(b"n")


def _reword(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(path.read_text().replace('"ledger": []', '"ledger": ["a"]'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, "state.json: JSONDecodeError"),
        (_flip, "adapter_model.safetensors is damaged: its SHA-256 is"),
        (_unweigh, "adapter_model.safetensors: No such file"),
        (_forget, "optimizer.safetensors: No such file"),
        (_rot, "optimizer.safetensors is damaged"),
        (_reword, "state.json is damaged"),
        (_unlist, "SHA256SUMS: FileNotFoundError"),
        (_age, "has the format 1, not this trainer's 3"),
    ],
)
def test_a_damaged_commit_is_not_resumed(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    sound = _write(tmp_path, 2)
    damage(_write(tmp_path, 3).folder)
    with pytest.raises(SetupError, match=said) as raised:
        commits.to_resume(tmp_path, fingerprint=PRINT)
    assert damage is _age or "--from-version 2" in str(raised.value)
    assert commits.to_resume(tmp_path, fingerprint=PRINT, from_version=2) == sound


def test_sha256sum_checks_a_commit(tmp_path: Path) -> None:
    folder = _write(tmp_path, 1).folder
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    files = {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    assert set(done.stdout.splitlines()) == {f"{name}: OK" for name in files}


@pytest.mark.parametrize(
    "stranger", ["policy-v000002.bad", "policy-v000009 (copy)", "policy-vlast", "policy-v0000009"]
)
def test_only_what_is_named_as_a_version_is_one(tmp_path: Path, stranger: str) -> None:
    """As after `mv policy-v000002 policy-v000002.bad`."""
    kept = _write(tmp_path, 1)
    _write(tmp_path, 2).folder.rename(tmp_path / stranger)
    (tmp_path / "policy-v000003").write_text("a file")
    assert commits.to_resume(tmp_path, fingerprint=PRINT) == kept
    commits.prune(tmp_path, newest=50, keep=3)
    assert {path.name for path in tmp_path.iterdir()} == {stranger, "policy-v000003"}


def test_numbers_of_seven_digits_come_after_those_of_six(tmp_path: Path) -> None:
    for number in (999_999, 1_000_000):
        _write(tmp_path, number)
    assert list(commits.folders(tmp_path)) == [999_999, 1_000_000]


def test_a_version_to_go_back_to_need_not_have_its_moments(tmp_path: Path) -> None:
    old = _write(tmp_path, 1)
    _write(tmp_path, 2)
    _forget(old.folder)
    assert commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1) == old
    _flip(old.folder)
    with pytest.raises(SetupError, match="damaged"):
        commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1)


def test_a_version_that_is_gone_is_not_gone_back_to(tmp_path: Path) -> None:
    for number in (0, 7, 8):
        _write(tmp_path, number)
    with pytest.raises(SetupError, match=r"--from-version 6: .* holds the versions 0, 7, 8$"):
        commits.to_resume(tmp_path, fingerprint=PRINT, from_version=6)


def test_a_run_goes_back_once_however_often_it_is_started(tmp_path: Path) -> None:
    source = _write(tmp_path, 1)
    _write(tmp_path, 2)
    assert commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1) == source
    copy = commits.write(tmp_path, number=3, files=FILES, ledger=(), fingerprint=PRINT, went_back_to=1)
    assert commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1) == copy
    _rot(copy.folder)
    assert commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1) == source


def test_damage_after_a_run_went_back_does_not_send_it_back_again(tmp_path: Path) -> None:
    """A supervisor starts the trainer with the flags of before: the versions made since are sound but one."""
    for number, back in ((1, None), (2, None), (3, 1), (4, 1)):
        newest = commits.write(
            tmp_path, number=number, files=FILES, ledger=(), fingerprint=PRINT, went_back_to=back
        )
    _rot(newest.folder)
    with pytest.raises(SetupError, match=r"policy-v000004/.* is damaged.* --from-version 3$"):
        commits.to_resume(tmp_path, fingerprint=PRINT, from_version=1)


def test_what_is_no_number_is_never_committed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        commits.write(
            tmp_path,
            number=0,
            files=FILES,
            ledger=(),
            fingerprint=PRINT,
            running_state={"kl_coefficient": math.nan},
        )
    assert commits.to_resume(tmp_path, fingerprint=PRINT) is None


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
    for number in (0, 20, 25, 50, *range(90, 130)):
        _write(tmp_path, number)
        commits.prune(tmp_path, newest=number, keep=20)
    left = {int(folder.name[-6:]) for folder in tmp_path.glob("policy-v*")}
    assert left == {0, 100, *range(110, 130)}
    assert (tmp_path / "policy-v000129" / "optimizer.safetensors").exists()
    assert not (tmp_path / "policy-v000120" / "optimizer.safetensors").exists()
