import json
from dataclasses import asdict
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chess_datasets.__main__ import main
from chess_datasets.jobs import Progress
from chess_datasets.positions.dataset import POSITIONS
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records, write_records
from rookery.commands import COMMANDS
from rookery.trace import Phase, Position
from services.data.__main__ import main as service
from tests.commands import call
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
    assert main(["sample", "--source", source, "--split", "all", "--count", "99", "--distinct"]) == 2
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 10
    assert "99 positions were asked for, but there are only 10 distinct ones" in said.err


def test_positions_of_a_named_game(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["sample", "--source", source, "--count"]
    assert main([*asked, "1", "--split", "all", "--shares", "1", "0", "0"]) == 0
    of_ruy = json.loads(capsys.readouterr().out)["id"].rpartition(":")[0]
    assert main([*asked, "3", "--game", of_ruy, "--ply-min", "2", "--ply-max", "4"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {position["ply"] for position in found} == {2, 3, 4}
    assert {position["id"].rpartition(":")[0] for position in found} == {of_ruy}
    assert main([*asked, "4", "--game", of_ruy, "--ply-min", "2", "--ply-max", "4"]) == 2
    assert f"4 positions were asked for, but there are only 3 in game '{of_ruy}'" in capsys.readouterr().err
    assert main([*asked, "1", "--game", "0123456789abcdef"]) == 2
    assert "no game '0123456789abcdef'" in capsys.readouterr().err
    assert main([*asked, "1", "--game", f"{of_ruy}:2"]) == 0, "the id of a position names its game"
    assert main([*asked, "1", "--game", of_ruy, "--split", "heldout"]) == 2
    assert "--game names one game: leave out --split" in capsys.readouterr().err


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
    assert main(["sample", "--source", source, "--count", "3", "--elo-min", "2000", "--no-bots"]) == 2
    assert "only data sets have --elo-min, --no-bots: add --out" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    listed = capsys.readouterr().out
    for name in (command.name.split()[1] for command in COMMANDS if command.family == "data"):
        assert f"  {name} " in listed
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert f"  rookery {'' if name == 'rescore' else 'data '}{name}" in shown.partition("Examples:")[2]


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
        ["sample", "--count", "many"],
        ["sample", "--count", "1", "--exam", "puzzles.csv"],
        ["sample", "--count", "1", "--jobs", "2"],
        ["sample", "--count", "1", "--offset", "-1"],
        ["sample", "--count", "1", "--distinct", "--out", "x"],
        ["sample", "--count", "1", "--result", "1-O", "--out", "x"],
        ["tasks", "next-fen", "--count", "1", "--out", "x", "--text", "../lines.txt"],
        ["tasks", "next-fen", "--count", "1", "--out", "x", "--text", "tasks.parquet"],
        ["pairs", "--count", "1", "--out", "x", "--jsonl", "manifest.json"],
        ["annotate", "--count", "1", "--out", "x", "--jobs", "-1"],
    ],
)
def test_wrong_flags_are_refused(argv: list[str]) -> None:
    assert call(main, argv).returncode == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--shares", "0", "0", "0"], "shares (0.0, 0.0, 0.0): none may be negative"),
        (["--elo-min", "2000", "--elo-max", "1000"], "elo from 2000 to 1000"),
        (["--ply-min", "9", "--ply-max", "8"], "plies from 9 to 8"),
        (["--games", "0"], "games 0.0 is not in (0, 1]"),
        (["--elo-min", "1600"], "games left out: 2 by elo"),
        (["--exam", "samples/README.md"], "'samples/README.md', line 3: no position in"),
    ],
)
def test_wrong_values_are_quoted(
    flags: list[str], said: str, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["sample", "--source", source, "--split", "all", "--count", "1", "--out", str(tmp_path / "out")]
    assert main([*argv, *flags]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["index", "-"], "an index is written beside its file, but '-' is standard input"),
        (["moves", "--count", "1", "--source", "-", "--out", "x"], "'-' can be read once"),
    ],
)
def test_standard_input_is_no_file(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_more_may_be_wanted_than_any_memory_holds(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "sample",
        "--source",
        source,
        "--split",
        "all",
        "--per-game",
        "99",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*argv, "--count", str(10**15)]) == 0
    assert f"{10**15} were asked for; there are no more" in capsys.readouterr().err


def test_a_small_set_has_as_many_as_were_asked_for(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["sample", "--source", "samples/lichess.pgn.zst", "--split", "heldout", "--out", str(tmp_path)]
    assert main([*argv, "--count", "3"]) == 0
    assert "3 positions {'opening': 1, 'middlegame': 2, 'endgame': 0}" in capsys.readouterr().err


def positions(tmp_path: Path, *fens: str | None, form: str = "parquet") -> str:
    """A file of positions, which may have nulls."""
    rows = [
        asdict(Position(f"t:{n}", "", 0, Phase.ENDGAME, "game")) | {"fen": fen} for n, fen in enumerate(fens)
    ]
    path = tmp_path / f"some.{form}"
    if form == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        write_records(open_folder(tmp_path), path.name, POSITIONS, [])
        schema = pq.read_schema(path)
        fen = pa.field("fen", pa.string(), nullable=True)
        schema = schema.set(schema.get_field_index("fen"), fen)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return str(path)


@pytest.mark.parametrize("task", ["next-fen", "legal-moves"])
def test_where_the_game_is_over_nothing_is_asked(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = positions(tmp_path, "7k/5KQ1/8/8/8/8/8/8 b - - 0 1", "7k/8/5KQ1/8/8/8/8/8 w - - 0 1")
    assert main(["tasks", task, "--count", "5", "--positions", file, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert f"1 positions of '{file}' are left out because the game is over" in said
    assert "5 were asked for; there are only 1" in said


@pytest.mark.parametrize(
    ("fen", "why"),
    [
        ("7k/5KQ1/8/8/8/8/8 b - - 0 1", "expected 8 rows"),
        ("8/5KQ1/8/8/8/8/8/8 b - - 0 1", "no black king"),
        ("bnrbkrqn/pppppppp/8/8/8/8/PPPPPPPP/BNRBKRQN w FCfc - 0 1", "Chess960"),
        (None, "not a FEN: None"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_impossible_position_is_left_out_and_named(
    fen: str | None, why: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mate, pawn = "7k/8/5KQ1/8/8/8/8/8 w KQ e6 0 1", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
    file = positions(tmp_path, mate, fen, pawn, form=form)
    argv = ["tasks", "next-fen", "--count", "5", "--positions", file, "--out", str(tmp_path / "out")]
    assert main(argv) == 0
    said = capsys.readouterr().err
    assert f"{file}: left out: 1\n  some.{form}, row 2: " in said
    assert why in said
    assert f"{file}: castling flags dropped: 1\n{file}: en-passant squares dropped: 1\n" in said
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    read = manifest["terms"]["positions"]["read"]
    assert (manifest["examples"], read["skipped_count"], list(read["dropped"].values())) == (2, 1, [1, 1])
    assert main(["stats", file, "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    if why != "Chess960":  # it can be counted
        assert (counts["positions"], counts["left_out"]) == (2, {"rows": 1})
    assert counts["dropped"] == read["dropped"]


def test_a_file_without_a_possible_position_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = positions(tmp_path, "8/5KQ1/8/8/8/8/8/8 b - - 0 1")
    tasks = ["tasks", "next-fen", "--count", "5", "--out", str(tmp_path / "out"), "--positions"]
    for argv in (tasks, ["stats"]):
        assert main([*argv, file]) == 2
        assert f"no position in '{file}': some.parquet, row 1: impossible position" in capsys.readouterr().err


def test_a_data_set_keeps_away_from_an_exam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exam, file = (
        tmp_path / "exam.epd",
        positions(tmp_path, "7k/8/5KQ1/8/8/8/8/8 w - - 0 1", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"),
    )
    exam.write_text("4k3/4p3/8/8/8/8/8/4K3 b - - bm e5;\n")
    other = tmp_path / "other.epd"
    other.write_text("8/8/8/8/8/4k3/8/4K2R w K - bm O-O;\n")
    argv = [
        "tasks",
        "next-fen",
        "--count",
        "5",
        "--positions",
        file,
        "--exam",
        str(exam),
        "--exam",
        str(other),
    ]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 0
    assert "5 were asked for; there are only 1" in capsys.readouterr().err
    exams = json.loads((tmp_path / "out" / "manifest.json").read_text())["terms"]["positions"]["exams"]
    assert [(exam["path"], exam["positions"]) for exam in exams] == [("exam.epd", 1), ("other.epd", 1)]


def test_sources_may_be_repeated(tmp_path: Path) -> None:
    files = [tmp_path / "a.pgn", tmp_path / "b.pgn"]
    for number, file in enumerate(files):
        file.write_text(f'[Event "?"]\n\n1. {("e4 e5", "d4 d5")[number]} 2. Nf3 Nf6 3. Nc3 Nc6 1-0\n')
    argv = ["sample", *(text for file in files for text in ("--source", str(file))), "--split", "all"]
    assert main([*argv, "--count", "2", "--out", str(tmp_path / "out")]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert len(manifest["terms"]["sources"]) == 2


def test_moves_keep_away_from_an_exam(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exam = tmp_path / "exam.txt"
    exam.write_text(f"{chess.STARTING_FEN}\n")
    argv = ["moves", "--source", source, "--split", "all", "--count", "100", "--exam", str(exam)]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["lines"], manifest["in_exams"]) == (9, 1)
    assert "left out because --exam files have them: 1" in capsys.readouterr().err


def test_a_service_without_games_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert service(["--sources", "missing.pgn"]) == 2
    assert "no file matches 'missing.pgn': set --sources (DATA_SOURCES)" in capsys.readouterr().err


def test_progress_is_lines_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chess_datasets.jobs._LINE_S", 0.0)
    with Progress() as progress:
        progress.begin("engine-moves", unit="positions", total=12000)
        progress.advance(4200)
        progress.begin("write", unit="files")
        progress.advance(2)
    assert capsys.readouterr().err.split("\n") == [
        "engine-moves: 4,200 of 12,000 positions",
        "write: 2 files",
        "",
    ]


def test_shares_of_more_than_one_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = ["--best-share", "0.7", "--uniform-share", "0.5"]
    assert main(["tasks", "engine-moves", "--count", "1", "--out", str(tmp_path / "out"), *shares]) == 2
    assert "--best-share 0.7 and --uniform-share 0.5: together more than 1" in capsys.readouterr().err
