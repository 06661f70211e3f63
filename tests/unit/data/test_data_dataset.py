import hashlib
import io
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import pytest
from backports import zstd

from chess_datasets.pgn import native, pieces
from chess_datasets.pgn.games import in_split
from chess_datasets.pgn.pieces import pieces_of
from chess_datasets.pgn.tags import Filters, Speed
from chess_datasets.positions.dataset import POSITIONS, write_positions
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.recipe import PositionRecipe, splitmix64
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records
from rookery.errors import InvalidInput, SetupError
from rookery.trace import Phase, Position
from tests.unit.data.test_data_pieces import announced, compressed
from tests.unit.data.texts import ENDING, ENDING_FEN, game

RECIPE = PositionRecipe(count=60, seed=5)


@pytest.fixture(scope="module")
def text(sample_path: Path) -> bytes:
    """The first 150 games of the sample, and a broken one among them."""
    whole = zstd.decompress(sample_path.read_bytes())
    games = whole.split(b"\n\n[Event")
    return b"\n\n[Event".join([*games[:80], b' "x"]\n\n1. e4 Ke5 *', *games[80:150]]) + b"\n\n"


@pytest.fixture
def source(text: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_bytes(text)
    return path


def drawn(manifest: dict[str, Any], folder: Path) -> list[Position]:
    name = manifest["outputs"][0]["path"]
    if name.endswith(".parquet"):
        return list(read_records(open_folder(folder), name, POSITIONS))
    lines = map(json.loads, (folder / name).read_text().splitlines())
    return [
        Position(**line | {"phase": Phase(line["phase"]), "last_moves": tuple(line["last_moves"])})
        for line in lines
    ]


def draw(source: Path, out: Path, recipe: PositionRecipe = RECIPE, **options: Any) -> list[Position]:
    return drawn(write_positions([source], out, recipe, **options), out)


def test_the_set_and_its_manifest(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = write_positions([source], out, replace(RECIPE, filters=Filters(elo_min=1500)))
    stored = (out / "positions.parquet").read_bytes()
    assert manifest == json.loads((out / "manifest.json").read_text())
    assert manifest["terms"]["sources"] == [
        {
            "path": "games.pgn",
            "size": source.stat().st_size,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        }
    ]
    assert manifest["outputs"] == [
        {"path": "positions.parquet", "size": len(stored), "sha256": hashlib.sha256(stored).hexdigest()}
    ]
    games = manifest["games"]
    assert (
        games["seen"] == 151 == games["read"] + sum(games["rejected"].values()) + manifest["skipped"]["games"]
    )
    assert games["rejected"]["elo"] > 0 < games["rejected"]["split"]
    assert manifest["positions"] == 60
    assert manifest["by_phase"] == {"opening": 12, "middlegame": 36, "endgame": 12}
    assert manifest["terms"]["recipe"]["filters"]["elo_min"] == 1500
    assert str(tmp_path) not in json.dumps(manifest)


def test_positions_are_what_they_say(source: Path, tmp_path: Path) -> None:
    positions = draw(source, tmp_path)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    for position in positions:
        board = chess.Board(position.fen)
        assert board.is_valid()
        assert not board.is_game_over()
        assert position.id.startswith(f"{sha256[:8]}:")
        assert position.id.endswith(f":{position.ply}")
        assert in_split(position.game_id, "train")
    assert Counter(position.phase for position in positions) == {
        "opening": 12,
        "middlegame": 36,
        "endgame": 12,
    }
    phases = [position.phase for position in positions]
    assert phases != sorted(phases)


def test_the_number_in_an_id_is_that_of_the_game(source: Path, text: bytes, tmp_path: Path) -> None:
    games = text.split(b"\n\n[Event")
    for position in draw(source, tmp_path):
        board = chess.Board()
        number = int(position.id.split(":")[1])
        moves = games[number - 1].split(b"\n\n")[1].split()
        sans = [word.decode() for word in moves if not word[:1].isdigit()]
        for san in sans[: position.ply]:
            board.push_san(san)
        assert board.fen() == position.fen


def outputs(source: Path, out: Path, **options: Any) -> bytes:
    write_positions([source], out, RECIPE, form="jsonl", **options)
    return (out / "positions.jsonl").read_bytes()


def without_source(lines: bytes) -> list[str]:
    return [line.split(":", 2)[2] for line in lines.decode().splitlines()]


def test_the_same_manifest_is_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = outputs(source, tmp_path / "a")
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    assert len(pieces_of(source)) > 10
    assert outputs(source, tmp_path / "c") == once
    monkeypatch.setattr(native, "AVAILABLE", False)
    assert outputs(source, tmp_path / "d") == once
    assert sorted(json.loads((tmp_path / "a/manifest.json").read_text())) == sorted(
        json.loads((tmp_path / "d/manifest.json").read_text())
    )


def test_frames_give_what_the_whole_gives(source: Path, text: bytes, tmp_path: Path) -> None:
    frames = source.with_suffix(".pgn.zst")
    frames.write_bytes(announced(compressed(text, cuts=[9000, 30_000, 60_000])))
    assert len(pieces_of(frames)) == 4
    there = outputs(source, tmp_path / "a")
    assert without_source(outputs(frames, tmp_path / "b")) == without_source(there)
    assert b": bad_move: " in (tmp_path / "b" / "manifest.json").read_bytes()
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    named = [manifest["skipped"]["first"][0].partition(" game ")[2] for manifest in manifests]
    assert named[0] == named[1]
    assert named[0].startswith("81 at byte ")


def test_the_order_of_games_changes_nothing(text: bytes, tmp_path: Path) -> None:
    games = [b"[Event" + rest for rest in (b"\n\n" + text).strip().split(b"[Event")[1:]]
    path = tmp_path / "games.pgn"
    sets = []
    for arranged in (games, games[::-1], games * 2):
        path.write_bytes(b"".join(game.strip() + b"\n\n" for game in arranged))
        sets.append([position.fen for position in draw(path, tmp_path / "out")])
    assert sets[0] == sets[1] == sets[2]


def test_the_seed_decides(source: Path, tmp_path: Path) -> None:
    one, other = (draw(source, tmp_path, replace(RECIPE, seed=seed)) for seed in (1, 2))
    assert {position.fen for position in one} != {position.fen for position in other}


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_part_of_the_games(source: Path, tmp_path: Path, part: float) -> None:
    chosen: set[int] = set()
    for seed in range(8):
        manifest = write_positions([source], tmp_path, replace(RECIPE, games=part, seed=seed))
        read = 151 - manifest["games"]["not_looked_at"]
        chosen.add(read)
        assert 151 * part * 0.3 < read < 151 * part * 2
    assert len(chosen) > 3


def test_no_question_is_asked_twice(source: Path, tmp_path: Path) -> None:
    every = replace(RECIPE, count=4000, per_game=20, split="all")
    positions = draw(source, tmp_path, every)
    assert len({position_key(position.fen) for position in positions}) == len(positions) > 2000


def test_a_mirrored_game_asks_nothing_new(tmp_path: Path) -> None:
    after_e4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    path = tmp_path / "games.pgn"
    path.write_text(
        game("1... e5 *", FEN=after_e4) + game("1. e4 *", FEN=chess.Board(after_e4).mirror().fen())
    )
    assert len(draw(path, tmp_path, replace(RECIPE, split="all"))) == 1


@pytest.mark.parametrize("suffix", [".fen", ".csv"])
def test_no_position_of_an_exam_is_taken(source: Path, tmp_path: Path, suffix: str) -> None:
    asked = draw(source, tmp_path)[::2]
    exam = (tmp_path / "exam").with_suffix(suffix)
    exam.write_text("".join(f"x,{chess.Board(position.fen).mirror().fen()},\n" for position in asked))
    manifest = write_positions([source], tmp_path, RECIPE, exams=[str(exam)])
    others = drawn(manifest, tmp_path)
    assert len(others) == 60
    assert {position_key(position.fen) for position in others}.isdisjoint(
        position_key(position.fen) for position in asked
    )
    assert manifest["in_exams"] >= 30
    assert manifest["terms"]["exams"][0]["path"] == exam.name


def test_filters_of_games(source: Path, tmp_path: Path) -> None:
    positions = draw(source, tmp_path, replace(RECIPE, filters=Filters(elo_min=1700, elo_gap_max=100)))
    assert positions
    for position in positions:
        assert position.white_elo is not None is not position.black_elo
        assert min(position.white_elo, position.black_elo) >= 1700
        assert abs(position.white_elo - position.black_elo) <= 100


def test_a_filter_that_nothing_passes_is_an_error(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nothing to sample in"):
        write_positions([source], tmp_path / "out", replace(RECIPE, filters=Filters(speeds=(Speed.RAPID,))))
    assert not (tmp_path / "out").exists()


def test_bounds_of_positions(source: Path, tmp_path: Path) -> None:
    positions = draw(source, tmp_path, replace(RECIPE, ply_min=10, ply_max=30, choices_min=30))
    assert {position.ply for position in positions} <= set(range(10, 31))
    assert all(chess.Board(position.fen).legal_moves.count() >= 30 for position in positions)


def test_forced_moves_are_left_out_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    path.write_text(game("1. Kxg2 Kg7 2. Kg3 *", FEN="7k/p7/8/8/8/8/P4nq1/7K w - - 0 1"))
    everything = replace(RECIPE, split="all", per_game=9)
    assert sorted(p.ply for p in draw(path, tmp_path, everything)) == [0, 1, 2]
    assert sorted(p.ply for p in draw(path, tmp_path, replace(everything, choices_min=2))) == [1, 2]


def test_chess960_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    fen = "nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w KQkq - 0 1"
    path.write_text(game("1. e4 e5 2. d3 d6 *", FEN=fen, Variant="Chess960") + game(ENDING, FEN=ENDING_FEN))
    recipe = replace(RECIPE, split="all", filters=Filters(variants=("chess960",)))
    assert [position.fen.split()[2] for position in draw(path, tmp_path, recipe)] == ["KQkq"]
    [standard] = draw(path, tmp_path, replace(RECIPE, split="all"))
    assert standard.phase is Phase.ENDGAME


def test_a_heldout_set_shares_no_game_with_a_train_set(source: Path, tmp_path: Path) -> None:
    train = draw(source, tmp_path, replace(RECIPE, split="train", count=1000))
    held = draw(source, tmp_path, replace(RECIPE, split="heldout", count=1000))
    assert {position.game_id for position in train}.isdisjoint(position.game_id for position in held)
    assert held


def test_standard_input_and_a_folder_are_sources(
    source: Path, text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    piped = write_positions(["-"], tmp_path / "a", RECIPE)
    folder = write_positions([source.parent], tmp_path / "b", RECIPE)
    assert piped["outputs"] == folder["outputs"]
    assert [entry["sha256"] for entry in piped["terms"]["sources"]] == [
        entry["sha256"] for entry in folder["terms"]["sources"]
    ]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_forms_hold_the_same(source: Path, tmp_path: Path, form: str) -> None:
    assert draw(source, tmp_path / form, form=form) == draw(source, tmp_path / "x")


@pytest.mark.parametrize(
    ("recipe", "options", "said"),
    [
        (RECIPE, {"form": "csv"}, "'csv': choose from parquet"),
        ({"count": 0}, {}, "at least 1"),
        ({"count": 1, "games": 0.0}, {}, r"not in \(0, 1\]"),
    ],
)
def test_what_makes_no_sense_is_refused(
    source: Path, tmp_path: Path, recipe: Any, options: Any, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        write_positions(
            [source], tmp_path, recipe if recipe is RECIPE else PositionRecipe(**recipe), **options
        )


def test_the_same_in_every_process() -> None:
    """Golden: another version must not draw another set from the same manifest."""
    assert [splitmix64(0, 1), splitmix64(7, 1 << 63)] == [10451216379200822465, 2784492152313641935]


@pytest.mark.parametrize(
    ("old", "new", "sha256"),
    [
        (b"\n", b"\n", "081045db019cb8f30612e5c951e858c7bbee56d176941c4886ea3b7db52b7fdd"),
        (b"\n", b"\r\n", "97cc6b5c24f9a1434d6c911b57c22e70ac98dcf5763e4715bc91f4f350daddd6"),
        (b"\n1. e4", b"\n% odd\n1. e4", "0628889f15397a0954a9fa05171754703143d8d6cc1b4b599aecff614ce4b047"),
    ],
)
def test_a_file_and_a_seed_stand_for_the_same_positions_in_every_version(
    sample_path: Path, tmp_path: Path, old: bytes, new: bytes, sha256: str
) -> None:
    whole = zstd.decompress(sample_path.read_bytes())
    (tmp_path / "games.pgn").write_bytes(whole.replace(old, new))
    recipe = PositionRecipe(count=500, seed=7, games=0.3)
    write_positions([tmp_path / "games.pgn"], tmp_path / "out", recipe, form="jsonl")
    positions = map(json.loads, (tmp_path / "out/positions.jsonl").read_text().splitlines())
    # The hashes are of a version whose positions had their last ten moves.
    before = [json.dumps(one | {"last_moves": one["last_moves"][-10:]}) + "\n" for one in positions]
    assert hashlib.sha256("".join(before).encode()).hexdigest() == sha256
