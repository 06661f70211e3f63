"""The archive as it lies on a disk: named by what is in it, and read back as it was written."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import describe, read_records, read_rows
from chess_datasets.traces.archive import ARCHIVED, GROUPS, TraceArchive, stream_id
from rookery.errors import InvalidInput
from rookery.trace import TraceGroup
from tests.unit.rookery.records import GROUP, TRUTH_GROUP, groups

GOLDEN = Path(__file__).parents[1] / "rookery" / "golden"
DAY = 1763721014000
"""2025-11-21 10:30:14 UTC."""


@pytest.fixture
def archive(tmp_path: Path) -> TraceArchive:
    return TraceArchive(open_folder(tmp_path / "archive"))


def keep(archive: TraceArchive, numbers: Sequence[int], *, run: str = "r1") -> str:
    """A file of groups g0, g1, ... as entries of so many milliseconds after `DAY`."""
    pairs = [(f"{DAY + number}-0", replace(GROUP, id=f"g{number}", run=run)) for number in numbers]
    return archive.write(run, pairs, first=pairs[0][0], last=pairs[-1][0]).name


def ids(archive: TraceArchive, *, run: str | None = None) -> list[str]:
    return [group.id for group in archive.groups(run=run)]


def test_a_file_is_named_by_run_day_and_entries(archive: TraceArchive) -> None:
    assert keep(archive, [0, 5]) == f"run=r1/date=2025-11-21/{DAY}-0_{DAY + 5}-0.parquet"


@given(st.lists(groups, min_size=1, max_size=4))
@settings(
    max_examples=settings.default.max_examples // 10,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_groups_come_back_as_they_were_written(tmp_path: Path, written: list[TraceGroup]) -> None:
    archive = TraceArchive(open_folder(tmp_path / "archive"))
    entries = [f"{DAY}-{number}" for number in range(len(written))]
    name = archive.write(
        "r", list(zip(entries, written, strict=True)), first=f"{DAY}-0", last=f"{DAY}-9"
    ).name
    assert list(archive.groups()) == written
    assert list(read_records(archive.folder, name, GROUPS)) == written
    assert [record.entry for record in read_records(archive.folder, name, ARCHIVED)] == entries


def test_groups_come_in_the_order_of_the_stream(archive: TraceArchive) -> None:
    for numbers in ([9, 10], [0, 1], [100], [2, 3]):
        keep(archive, numbers)
    assert ids(archive) == ["g0", "g1", "g2", "g3", "g9", "g10", "g100"]


def test_files_of_version_1_are_read(archive: TraceArchive) -> None:
    """In which a trace was one completion and its verdict."""
    place = Path(archive.folder.place("")) / "run=r1" / "date=2025-11-21" / f"{DAY}-0_{DAY}-0.parquet"
    place.parent.mkdir(parents=True)
    shutil.copy(GOLDEN / "archive_v1.parquet", place)
    assert list(archive.groups()) == [replace(TRUTH_GROUP, position=replace(GROUP.position, episode=""))]
    keep(archive, [0, 5])  # which overlaps it
    assert ids(archive) == ["g1", "g5"]


def test_ids_sort_as_numbers() -> None:
    entries = [f"{DAY}-10", f"{DAY}-9", f"{DAY - 1}-99"]
    assert sorted(entries, key=stream_id) == [f"{DAY - 1}-99", f"{DAY}-9", f"{DAY}-10"]


def test_runs_share_a_folder(archive: TraceArchive) -> None:
    keep(archive, [0, 1], run="r2")
    keep(archive, [0], run="r1")
    assert archive.runs() == ["r1", "r2"]
    assert ids(archive, run="r2") == ["g0", "g1"]
    assert [group.run for group in archive.groups()] == ["r1", "r2", "r2"]
    assert ids(archive, run="r3") == []


def test_files_that_overlap_are_read_once(archive: TraceArchive) -> None:
    for numbers in ([0, 1, 2, 90], [2, 3], [50, 90], [91]):
        keep(archive, numbers)
    assert sorted(ids(archive)) == sorted(["g0", "g1", "g2", "g90", "g3", "g50", "g91"])


def test_it_knows_what_it_holds(archive: TraceArchive) -> None:
    keep(archive, [0, 2, 4])
    keep(archive, [3, 7])
    next_day = f"{DAY + 86_400_000}-0"
    asked = [*(f"{DAY + number}-0" for number in range(9)), next_day]
    assert archive.archived_entries("r1", asked) == {f"{DAY + number}-0" for number in (0, 2, 3, 4, 7)}
    assert archive.archived_entries("r2", asked) == set()


def test_the_same_groups_make_the_same_file(archive: TraceArchive) -> None:
    name = keep(archive, [0, 1])
    first = archive.folder.sha256(name)
    assert (keep(archive, [0, 1]), archive.folder.sha256(name)) == (name, first)
    assert len(archive.files()) == 1


def test_a_file_says_what_it_holds(archive: TraceArchive) -> None:
    name = keep(archive, [0, 1])
    described = describe(archive.folder, name)
    assert (described.kind, described.version, described.notes) == ("groups", "2", {"run": "r1"})
    assert [*next(read_rows(archive.folder, name))][-1] == "entry"


def test_a_stranger_in_the_folder_is_named(archive: TraceArchive) -> None:
    archive.folder.write_bytes("notes.parquet", b"")
    with pytest.raises(InvalidInput, match=r"'notes\.parquet' is not a file of an archive"):
        archive.runs()
