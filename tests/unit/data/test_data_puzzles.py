"""Puzzles: the opponent's move is played, the solution is legal, and a bad row costs itself alone."""

import gzip
from pathlib import Path

import chess
import pytest

from chess_datasets.positions.distinct import PositionKeys, position_key
from chess_datasets.tasks.puzzles import (
    PuzzleCounts,
    PuzzleFilter,
    puzzle_examples,
    puzzle_position,
    read_puzzles,
)
from rookery.errors import InvalidInput, SetupError
from rookery.puzzles import Puzzle

HEADER = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags\n"
BEFORE = "6k1/5ppp/8/8/8/8/r4PPP/1R4K1 b - - 0 30"


def row(
    name: str = "mate1",
    fen: str = BEFORE,
    moves: str = "a2a3 b1b8",
    rating: str = "800",
    themes: str = "backRankMate mateIn1",
) -> str:
    return f"{name},{fen},{moves},{rating},75,94,1000,{themes},https://lichess.org/abcdefgh#60,Some_Opening\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "puzzles.csv"
    path.write_text(HEADER + row())
    return path


def test_the_opponent_s_move_has_been_played(table: Path) -> None:
    [puzzle] = read_puzzles(table)
    assert puzzle.fen == "6k1/5ppp/8/8/8/r7/5PPP/1R4K1 w - - 1 31"
    assert (puzzle.opponent_move, puzzle.solution) == ("a2a3", ("b1b8",))
    assert (puzzle.rating, puzzle.themes) == (800, ("backRankMate", "mateIn1"))
    position = puzzle_position(puzzle, next(puzzle.turns()))
    assert (position.id, position.fen, position.last_moves) == ("puzzle:mate1:0", puzzle.fen, ("a2a3",))


def test_each_of_the_solver_s_moves_is_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    fen = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
    path.write_text(HEADER + row(fen=fen, moves="f1b5 a7a6 b5c6 d7c6 f3e5 d8d4"))
    [puzzle] = read_puzzles(path)
    turns = list(puzzle.turns())
    assert [turn.move for turn in turns] == ["a7a6", "d7c6", "d8d4"]
    assert turns[1].played == ("f1b5", "a7a6", "b5c6")
    for turn in turns:
        assert chess.Move.from_uci(turn.move) in chess.Board(turn.fen).legal_moves
        assert turn.fen.split()[1] == "b"


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (PuzzleFilter(), ["a", "b", "c"]),
        (PuzzleFilter(min_rating=1000), ["b", "c"]),
        (PuzzleFilter(min_rating=1000, max_rating=1500), ["b"]),
        (PuzzleFilter(themes=frozenset({"fork", "pin"})), ["b", "c"]),
        (PuzzleFilter(without=frozenset({"fork"})), ["a", "c"]),
        (PuzzleFilter(themes=frozenset({"fork"}), without=frozenset({"fork"})), []),
        (PuzzleFilter(max_deviation=74), []),
        (PuzzleFilter(min_popularity=95), []),
        (PuzzleFilter(min_plays=1000), ["a", "b", "c"]),
    ],
)
def test_filters(tmp_path: Path, wanted: PuzzleFilter, taken: list[str]) -> None:
    path = tmp_path / "many.csv"
    path.write_text(
        HEADER
        + row("a", rating="900", themes="mateIn1")
        + row("b", rating="1400", themes="fork short")
        + row("c", rating="2000", themes="pin")
    )
    report = PuzzleCounts()
    assert [puzzle.id for puzzle in read_puzzles(path, wanted=wanted, counts=report)] == taken
    assert (report.rows, report.puzzles, report.skipped.total()) == (3, len(taken), 0)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row("x", fen="8/8 w - - 0 1"), "bad_position"),
        (row("x", fen="8/8/8/8/8/8/8/8 w - - 0 1"), "bad_position"),
        (row("x", moves="a2a3 b1b9"), "bad_move"),
        (row("x", moves="a2a3 0000"), "bad_move"),
        (row("x", moves="0000 b1b8"), "bad_move"),
        (row("x", moves="a2a3 b1c3"), "bad_move"),
        (row("x", moves="a2a3"), "no_last_move"),
        (row("x", moves="a2a3 b1b8 g8h8"), "bad_move"),
        (row("x", moves=""), "short_row"),
        (row("x", rating="strong"), "bad_number"),
        ("x,short\n", "short_row"),
        ("\0\n", "short_row"),
    ],
)
def test_a_bad_row_costs_itself_alone(tmp_path: Path, bad: str, reason: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEADER + row("before") + bad + row("after"))
    report = PuzzleCounts()
    assert [puzzle.id for puzzle in read_puzzles(path, counts=report)] == ["before", "after"]
    assert dict(report.skipped) == {reason: 1}
    assert report.first[0].startswith(f"row 2: {reason}: ")


def test_a_table_without_its_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("name,move\nx,e4\n")
    with pytest.raises(InvalidInput, match=r"lacks the columns \['FEN'"):
        list(read_puzzles(path))
    path.write_text("")
    with pytest.raises(InvalidInput, match="not a table of puzzles"):
        list(read_puzzles(path))
    with pytest.raises(SetupError, match="cannot read"):
        list(read_puzzles(tmp_path / "missing.csv"))


def test_compressed_tables_are_read_and_a_cut_one_gives_what_it_has(tmp_path: Path, table: Path) -> None:
    path = tmp_path / "puzzles.csv.gz"
    path.write_bytes(gzip.compress((HEADER + row() * 2000).encode()))
    assert len(list(read_puzzles(path))) == 2000
    path.write_bytes(path.read_bytes()[:-20])
    report = PuzzleCounts()
    assert 0 < len(list(read_puzzles(path, counts=report))) <= 2000
    assert "damaged_file" in report.skipped


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_windows_line_ends_and_the_encoding_do_not_matter(encoding: str, table: Path) -> None:
    text = table.read_text().replace("abcdefgh", "Gr\u00fcnfeld")
    table.write_text(text)
    expected = list(read_puzzles(table))
    assert expected[0].url == "https://lichess.org/Gr\u00fcnfeld#60"
    table.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert list(read_puzzles(table)) == expected


def test_puzzles_that_an_exam_asks_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    fen = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
    path.write_text(HEADER + row(fen=fen, moves="f1b5 a7a6 b5c6 d7c6 f3e5 d8d4") + row("other"))
    *_, last = next(read_puzzles(path)).turns()
    mirrored = chess.Board(last.fen).mirror().fen()
    report = PuzzleCounts()
    [puzzle] = read_puzzles(path, excluded=PositionKeys([position_key(mirrored)]), counts=report)
    assert puzzle.id == "other"
    assert (report.rows, report.puzzles, report.in_exams) == (2, 1, 1)


def test_bounds_without_anything_between_them_are_refused() -> None:
    with pytest.raises(InvalidInput, match="ratings from 2000 to 1000"):
        PuzzleFilter(min_rating=2000, max_rating=1000)


@pytest.mark.parametrize("style", ["fen", "pgn-legal-uci", "mover-squares"])
def test_examples_answer_on_the_board_they_show(style: str, table: Path) -> None:
    mirrored = chess.Board(BEFORE).mirror().fen()
    table.write_text(HEADER + row("white") + row("black", fen=mirrored, moves="a7a6 b8b1"))
    examples = list(puzzle_examples(read_puzzles(table), style=style))
    assert [example.id for example in examples] == ["puzzle:white:0", "puzzle:black:0"]
    for example in examples:
        board = chess.Board(example.fen)
        board.push_san(example.answer.removeprefix("\\boxed{").removesuffix("}"))
        assert board.is_checkmate()
    if style.startswith("mover"):
        assert examples[0].messages == examples[1].messages


@pytest.mark.shared_data
def test_every_published_puzzle_is_read_and_solved_by_its_solution(shared_data: Path) -> None:
    path = shared_data / "puzzles_lichess_kagi" / "puzzles_dev_999.csv"
    report = PuzzleCounts()
    puzzles: list[Puzzle] = list(read_puzzles(path, counts=report))
    assert (len(puzzles), report.skipped.total()) == (999, 0)
    for puzzle in puzzles[:100]:
        if "mate" in puzzle.themes:
            board = chess.Board(puzzle.fen)
            for move in puzzle.solution:
                board.push_uci(move)
            assert board.is_checkmate()
