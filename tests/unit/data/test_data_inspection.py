"""What `inspect` says of files of every kind, and of those that are not what they claim."""

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from rookery.errors import InvalidInput, SetupError
from services.data.__main__ import main
from services.data.commands.inspect import Format, inspect
from services.data.positions.dataset import POSITIONS
from services.data.store.folders import open_folder
from services.data.store.jsonl import write_jsonl
from services.data.store.parquet import write_records
from services.data.traces.archive import TraceArchive
from tests.unit.rookery.records import GROUP, POSITION

GAME = '[Event "x"]\n[Result "1-0"]\n\n1. e4 e5 1-0\n\n'


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A Parquet file, lines beside it, and the manifest of both."""
    folder = open_folder(tmp_path / "set")
    files = [
        write_records(folder, "p.parquet", POSITIONS, [POSITION] * 5, notes={"seed": "3"}),
        write_jsonl(folder, "p.jsonl", [{"a": n} for n in range(9)]),
    ]
    outputs = [{"path": f.name, "size": f.size, "sha256": f.sha256} for f in files]
    folder.write_bytes("manifest.json", json.dumps({"kind": "positions", "outputs": outputs}).encode())
    return tmp_path / "set"


def test_a_parquet_file(dataset: Path) -> None:
    found = inspect(str(dataset / "p.parquet"), items=2)
    assert found.format is Format.PARQUET
    assert (found.facts["rows"], found.facts["holds"], found.facts["seed"]) == (
        5,
        "positions, version 1",
        "3",
    )
    assert (found.schema["fen"], found.schema["last_moves[]"]) == ("string", "string")
    assert [row["id"] for row in found.first] == [POSITION.id] * 2
    assert [(check.name, check.holds) for check in found.checks] == [("p.parquet", True)]


def test_a_folder_with_its_manifest(dataset: Path) -> None:
    found = inspect(str(dataset))
    assert (found.format, found.facts["files"]) == (Format.FOLDER, 2)
    assert [check.holds for check in found.checks] == [True, True]


def test_a_file_that_was_changed_is_found_out(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (dataset / "p.jsonl").open("ab") as file:
        file.write(b"{}\n")
    assert main(["inspect", str(dataset)]) == 1
    shown = capsys.readouterr().out
    assert "p.parquet holds" in shown
    assert "p.jsonl DIFFERS" in shown
    (dataset / "p.parquet").unlink()
    assert [check.holds for check in inspect(str(dataset)).checks] == [False, False]


@pytest.mark.parametrize(
    "manifest", [b"[]", b'{"outputs": null}', b'{"outputs": ["p.parquet", {"path": "x"}]}']
)
def test_a_manifest_of_another_make_is_no_reproach(manifest: bytes, dataset: Path) -> None:
    (dataset / "manifest.json").write_bytes(manifest)
    assert inspect(str(dataset)).checks == []
    (dataset / "manifest.json").write_bytes(b"{")
    assert [check.holds for check in inspect(str(dataset)).checks] == [False]


def test_lines_are_counted_when_asked(dataset: Path) -> None:
    assert "lines" not in inspect(str(dataset / "p.jsonl")).facts
    found = inspect(str(dataset / "p.jsonl"), items=2, count=True)
    assert (found.format, found.facts["lines"], found.first) == (Format.JSONL, 9, [{"a": 0}, {"a": 1}])


@pytest.mark.parametrize(
    ("data", "form", "first"),
    [
        (GAME.encode() * 2, Format.PGN, GAME.replace("\n\n", "\n")),
        (b"\xef\xbb\xbf" + GAME.encode(), Format.PGN, GAME.replace("\n\n", "\n")),
        (b"1. e4 e5 *\n", Format.PGN, "1. e4 e5 *\n"),
        (b"{a comment}\n1. e4 e5 *\n", Format.PGN, "{a comment}\n1. e4 e5 *\n"),
        (b'\xef\xbb\xbf{"two\nlines"}\n[White "x"]\n*\n', Format.PGN, '{"two\nlines"}\n[White "x"]\n*\n'),
        (b'[pgn]\n\n[White "x"]\n\ne4 *\n', Format.PGN, '[pgn]\n[White "x"]\ne4 *\n'),
        (b"; a comment\n% escaped\n\n1. e4 *\n", Format.PGN, "; a comment\n1. e4 *\n"),
        (b"{no game}\n", Format.TEXT, "{no game}"),
        (b"[no game]\n", Format.TEXT, "[no game]"),
        (b"[1, 2]\n", Format.JSON, 1),
        (b'[\n  {"role": "user"}, {"role": "assistant"}\n]', Format.JSON, {"role": "user"}),
        (b'{\n "a": 1\n}', Format.JSON, {"a": 1}),
        (b'{"a": 1}\n{"a": 2}\n', Format.JSONL, {"a": 1}),
        (b"hello there\nbye\n", Format.TEXT, "hello there"),
    ],
)
@pytest.mark.parametrize("packed", ["", "zstd", "gzip"])
def test_formats_are_told_from_the_bytes(
    data: bytes, form: Format, first: object, packed: str, tmp_path: Path
) -> None:
    pack = {"": bytes, "zstd": zstandard.ZstdCompressor().compress, "gzip": gzip.compress}[packed]
    path = tmp_path / "no-suffix"
    path.write_bytes(pack(data))
    found = inspect(str(path), items=1)
    assert (found.format, found.first) == (form, [first])
    assert found.facts.get("compressed", "") == packed


def test_an_archive_tells_its_runs(tmp_path: Path) -> None:
    archive = TraceArchive(open_folder(tmp_path))
    for day in (0, 2):
        entry = f"{1763721014000 + day * 86_400_000}-0"
        archive.write("r1", [(entry, GROUP)], first=entry, last=entry)
    found = inspect(str(tmp_path))
    assert found.format is Format.ARCHIVE
    assert found.facts["run r1"] == "2 groups in 2 files, 2025-11-21 to 2025-11-23"
    assert found.schema["traces[].verdict.reward"] == "double"
    assert found.schema["traces[].completion.token_ids[]"] == "uint32"


def test_what_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SetupError, match=r"cannot read '.*nothing': No such file"):
        inspect(str(tmp_path / "nothing"))
    assert main(["inspect", str(tmp_path / "nothing")]) == 2


@pytest.mark.parametrize("data", [b"PAR1", b"PAR1 cut off in the middle", b'[{"a": 1}, {"b"'])
def test_what_is_damaged_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"/x' is not (a Parquet file|JSON)"):
        inspect(str(tmp_path / "x"))


def test_a_cut_parquet_file_is_damaged(dataset: Path) -> None:
    data = (dataset / "p.parquet").read_bytes()
    (dataset / "p.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(InvalidInput, match=r"is not a Parquet file"):
        inspect(str(dataset / "p.parquet"))


def test_it_speaks_json(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", str(dataset / "p.parquet"), str(dataset / "p.jsonl")]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["format"], first["facts"]["rows"]) == ("parquet", 5)
    assert second["format"] == "jsonl"
