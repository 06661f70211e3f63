"""Folders on a disk and in a real S3: files appear whole or not at all, whoever dies meanwhile."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import s3fs

from chess_datasets.store.folders import PART_BYTES, Folder, open_file, open_folder
from chess_datasets.store.parquet import Kind, describe, open_parquet, read_records, read_rows, write_records
from rookery.errors import InvalidInput, SetupError, Unavailable
from rookery.trace import Phase, Position, TraceGroup
from tests.conftest import free_port
from tests.unit.rookery.records import GROUP

GROUPS = Kind("groups", TraceGroup, rows=2)
POSITIONS = Kind("positions", Position, rows=1000)


@pytest.fixture(params=["disk", "file-url", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "s3":
        return open_folder(f"{request.getfixturevalue('bucket')}/some/prefix")
    return open_folder(tmp_path / "x" if request.param == "disk" else f"file://{tmp_path}/x")


def test_a_file_comes_back(folder: Folder) -> None:
    written = folder.write_bytes("a/b.bin", b"hello")
    assert (written.name, written.size) == ("a/b.bin", 5)
    assert written.sha256 == hashlib.sha256(b"hello").hexdigest() == folder.sha256("a/b.bin")
    assert folder.read_bytes("a/b.bin") == b"hello"
    folder.write_bytes("a/b.bin", b"")
    assert folder.read_bytes("a/b.bin") == b""


def test_names_are_those_below_the_folder(folder: Folder) -> None:
    assert folder.names() == []
    for name in ("b.parquet", "a/c.parquet", "a/d.json"):
        folder.write_bytes(name, b"x")
    assert folder.names() == ["a/c.parquet", "a/d.json", "b.parquet"]
    assert folder.names(below="a", suffix=".parquet") == ["a/c.parquet"]
    assert folder.names(below="nowhere") == []
    assert folder.names(suffix=".parquet") == ["a/c.parquet", "b.parquet"]


def test_nothing_is_below_a_file(folder: Folder) -> None:
    folder.write_bytes("a/b.bin", b"x")
    assert open_folder(folder.place("a/b.bin")).names() == []


def test_a_file_goes(folder: Folder) -> None:
    folder.write_bytes("a/b.bin", b"x")
    folder.remove("a/b.bin")
    folder.remove("a/b.bin")
    assert folder.names() == []


def test_nobody_sees_a_file_before_it_is_whole(folder: Folder) -> None:
    folder.write_bytes("old.bin", b"old")
    with folder.write("new.bin") as new, folder.write("old.bin") as old:
        for draft in (new, old):
            draft.write(b"x" * (PART_BYTES + 1))
        assert folder.names() == ["old.bin"]
        assert folder.read_bytes("old.bin") == b"old"
    assert folder.names() == ["new.bin", "old.bin"]
    assert len(folder.read_bytes("old.bin")) == PART_BYTES + 1


def test_a_write_that_fails_leaves_nothing(folder: Folder) -> None:
    with pytest.raises(ZeroDivisionError), folder.write("a.bin") as draft:
        draft.write(b"x" * (PART_BYTES + 1))
        _ = 1 / 0
    assert folder.names() == []
    with pytest.raises(SetupError, match=r"cannot read .*a\.bin"):
        folder.read_bytes("a.bin")


def test_records_come_back(folder: Folder) -> None:
    groups = [GROUP] * 5
    written = write_records(folder, "g.parquet", GROUPS, groups, notes={"run": "r1"})
    assert list(read_records(folder, "g.parquet", GROUPS)) == groups
    assert [row["id"] for row in read_rows(folder, "g.parquet", ("id",))] == [GROUP.id] * 5
    described = describe(folder, "g.parquet")
    assert (described.kind, described.version, described.rows) == ("groups", "1", 5)
    assert described.notes == {"run": "r1"}
    with folder.read("g.parquet") as raw:
        assert open_parquet(raw, "g.parquet").num_row_groups == 3
    assert write_records(folder, "h.parquet", GROUPS, groups, notes={"run": "r1"}).sha256 == written.sha256


def test_a_folder_and_a_name_make_a_file(folder: Folder) -> None:
    folder.write_bytes("a.bin", b"x")
    parent, name = open_file(folder.place("a.bin"))
    assert parent.read_bytes(name) == b"x"


# S3 alone


def test_a_large_file_goes_in_parts(bucket: str, s3_environment: dict[str, str]) -> None:
    with open_folder(bucket).write("big.bin") as draft:
        for _ in range(2 * PART_BYTES // 65536 + 1):
            draft.write(b"x" * 65536)
    head = httpx.head(f"{s3_environment['AWS_ENDPOINT_URL']}/{bucket.removeprefix('s3://')}/big.bin")
    assert head.headers["etag"].strip('"').endswith("-3")
    assert int(head.headers["content-length"]) == draft.written.size == 2 * PART_BYTES + 65536


def test_parts_of_a_failed_write_are_taken_back(bucket: str, s3_environment: dict[str, str]) -> None:
    with pytest.raises(ZeroDivisionError), open_folder(bucket).write("big.bin") as draft:
        draft.write(b"x" * (PART_BYTES + 1))
        assert "<Upload>" in _uploads(bucket, s3_environment)
        _ = 1 / 0
    assert "<Upload>" not in _uploads(bucket, s3_environment)


def _uploads(bucket: str, environment: dict[str, str]) -> str:
    return httpx.get(f"{environment['AWS_ENDPOINT_URL']}/{bucket.removeprefix('s3://')}?uploads").text


def test_no_such_bucket_is_named(s3_environment: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="cannot write 's3://nowhere-at-all/x'"):
        open_folder("s3://nowhere-at-all").write_bytes("x", b"x")


def test_an_s3_that_is_away_is_a_fault(
    s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()  # it remembers where S3 was
    with pytest.raises(Unavailable, match="cannot write 's3://away/x' now"):
        open_folder("s3://away").write_bytes("x", b"x")


def test_a_store_that_fails_while_a_file_is_read_is_a_fault(bucket: str) -> None:
    folder = open_folder(bucket)
    folder.write_bytes("a.bin", b"x")
    with folder.read("a.bin") as file:
        folder.remove("a.bin")
        with pytest.raises(SetupError, match=r"cannot read 's3://.*a\.bin'"):
            file.read()


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(SetupError, match="gopher"):
        open_folder("gopher://x/y")


# a disk alone

KILLED = """
import sys
from chess_datasets.store.folders import open_folder
with open_folder(sys.argv[1]).write("a.bin") as draft:
    draft.write(b"x" * 100000)
    print("half", flush=True)
    sys.stdin.read()
"""


def test_a_killed_writer_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout and process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert open_folder(tmp_path).names() == []
    assert open_folder(tmp_path).write_bytes("a.bin", b"whole").size == 5


# what does not fit


def test_another_kind_or_version_is_refused(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    write_records(folder, "g.parquet", GROUPS, [GROUP])
    with pytest.raises(InvalidInput, match="holds 'groups' in version '1': 'positions' in version '1'"):
        list(read_records(folder, "g.parquet", POSITIONS))
    with pytest.raises(InvalidInput, match="'groups' in version '2' is read here"):
        list(read_records(folder, "g.parquet", Kind("groups", TraceGroup, version=2)))


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(InvalidInput, match=r"x\.parquet' is not a Parquet file"):
        describe(open_folder(tmp_path), "x.parquet")


def test_writing_streams(tmp_path: Path) -> None:
    """Records are taken a row group at a time: the file grows while they are still being made."""
    folder, sizes = open_folder(tmp_path), []

    def records() -> object:
        for number in range(5000):
            if number % 1000 == 999:
                sizes.append(max(path.stat().st_size for path in tmp_path.iterdir()))
            yield Position(f"x:1:{number}", "fen", number, Phase.OPENING, f"game-{time.monotonic_ns()}")

    write_records(folder, "p.parquet", POSITIONS, records())  # type: ignore[arg-type]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 3 * sizes[1]
