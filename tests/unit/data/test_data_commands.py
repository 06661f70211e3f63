import json
import subprocess
import sys
from pathlib import Path

import pytest

from services.data.__main__ import main
from services.data.commands import COMMANDS
from services.data.store.kinds import POSITIONS
from services.data.store.storage import open_folder
from services.data.store.tables import read_records
from tests.conftest import ROOT
from tests.unit.data.texts import RUY, game


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "games.pgn"
    path.write_text(game("1. e5 *") + game(RUY, WhiteElo="1500"))
    return str(path)


def test_sample_prints_positions(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--source", source, "--split", "all", "--count", "4", "--seed", "2"]) == 0
    positions = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(positions) == 4
    assert positions[0].keys() == {
        "id", "fen", "ply", "phase", "game_id", "last_moves", "white_elo", "black_elo",
    }  # fmt: skip
    main(["sample", "--source", source, "--split", "all", "--count", "2", "--seed", "2", "--offset", "2"])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == positions[2:]


def test_too_few_distinct_positions_are_an_error(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--source", source, "--split", "all", "--count", "99", "--distinct"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 10
    assert "99 positions asked for, only 10 distinct ones there" in said.err


def test_sample_writes_a_data_set(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "set"
    argv = ["sample", "--source", source, "--split", "all", "--count", "3", "--out", str(out)]
    assert main([*argv, "--shares", "1", "0", "0", "--elo-max", "2000"]) == 2
    assert "nothing to sample" in capsys.readouterr().err
    assert main([*argv, "--shares", "1", "0", "0", "--per-game", "3", "--ply-min", "4"]) == 0
    assert "3 positions {'opening': 3" in capsys.readouterr().err
    positions = list(read_records(open_folder(out), "positions.parquet", POSITIONS))
    assert len({position.fen for position in positions}) == 3
    assert min(position.ply for position in positions) >= 4
    assert json.loads((out / "manifest.json").read_text())["terms"]["recipe"]["ply_min"] == 4


def test_what_is_printed_is_not_filtered(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sample", "--source", source, "--count", "3", "--elo-min", "2000"])
    assert "give --out" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in listed
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert f"  rookery {'' if name == 'rescore' else 'data '}{name}" in shown.partition("examples:")[2]


def test_archive_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["archive", "--help"])
    assert ended.value.code == 0
    assert "--file-groups" in capsys.readouterr().out


def test_moves_reports_what_it_did(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["moves", "--source", source, "--split", "all", "--count", "100", "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert "10 lines from 1 games, 1 games skipped" in said
    assert "100 were asked for; there are {'opening': 10" in said
    assert "skipped games.pgn game 1 at byte 0: bad_move: illegal san: 'e5'" in said
    assert (out / "moves.jsonl").exists()


@pytest.mark.parametrize("command", ["sample", "moves"])
def test_a_missing_file_is_named(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [command, "--source", "missing.pgn", "--count", "1"]
    assert main(argv + (["--out", str(tmp_path)] if command == "moves" else [])) == 2
    assert "error: no file matches 'missing.pgn'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["sample", "--count", "0"],
        ["moves", "--count", "1", "--out", "x", "--legal-share", "1.5"],
        ["moves", "--count", "1", "--out", "x", "--style", "nope"],
    ],
)
def test_wrong_flags_are_refused(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


def test_a_service_without_games_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sources", "missing.pgn"]) == 2
    assert "no file matches 'missing.pgn': set --sources (DATA_SOURCES)" in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_the_command() -> None:
    command = f"{sys.executable} -m services.data sample --split heldout --count 5000 | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert json.loads(done.stdout)["ply"] >= 0
