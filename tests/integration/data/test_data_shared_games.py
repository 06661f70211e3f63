"""Real and deliberately broken PGN files of others: every sound game found, every broken one named."""

import io
from collections import Counter
from itertools import islice
from pathlib import Path

import chess
import chess.pgn
import pytest

from chess_datasets.pgn import native
from chess_datasets.pgn.games import Game, SkippedGame
from chess_datasets.pgn.native import NativeGame
from chess_datasets.pgn.parser import parse_game
from chess_datasets.pgn.pieces import pieces_of
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.store.files import identify
from rookery.encoding import decode
from rookery.pgn.rawgame import Defect
from rookery.pgn.reader import STANDARD_NAMES

pytestmark = pytest.mark.shared_data

LICHESS = 400
GAMES = 100


def read(path: Path) -> tuple[list[Game], Counter[str]]:
    source = identify(path)
    parsed = [parse_game(raw, source) for raw in read_raw_games(path)]
    skipped = Counter(game.defect.value for game in parsed if isinstance(game, SkippedGame))
    return [game for game in parsed if isinstance(game, Game)], skipped


@pytest.mark.parametrize(
    ("name", "sound", "skipped"),
    [
        ("pgn_compressed_and_derived/lichess_400.pgn", LICHESS, {}),
        ("pgn_compressed_and_derived/lichess_400.pgn.zst", LICHESS, {}),
        ("pgn_compressed_and_derived/lichess_400.pgn.gz", LICHESS, {}),
        ("pgn_compressed_and_derived/lichess_400.pgn.bz2", LICHESS, {}),
        ("pgn_compressed_and_derived/truncated.pgn.zst", 155, {"damaged_file": 1}),
        ("pgn_compressed_and_derived/cut_mid_move.pgn", 3, {}),
        ("pgn_compressed_and_derived/empty.pgn", 0, {}),
        ("pgn_compressed_and_derived/illegal_move_mid_game.pgn", 1, {"bad_move": 1}),
        ("pgn_compressed_and_derived/latin1_names.pgn", 2, {}),
        ("pgn_compressed_and_derived/null_moves.pgn", 1, {"null_move": 1}),
        ("pgn_compressed_and_derived/unterminated_comment_then_game.pgn", 1, {"open_comment": 1}),
        ("pgn_gm_players/splits/dev_gm_original_bytes_crlf_latin1.pgn", 321, {}),
        ("pgn_lichess_eval_clk/lichess_db_page_sample.pgn", 1, {}),
        ("pgn_annotated_misc/chesslib/Morphy_ANSI.pgn", 211, {}),
        ("pgn_annotated_misc/chesslib/Morphy_UTF8.pgn", 211, {}),
        ("pgn_annotated_misc/scalachess/wcc2023.txt", 3, {}),
        ("pgn_nasty/python-chess/utf8-bom.pgn", 0, {"no_moves": 2}),
        ("pgn_nasty/python-chess/chessbase-empty-line.pgn", 1, {}),
        ("pgn_nasty/python-chess/cutechess-fischerrandom.pgn", 0, {"variant": 4}),
        ("pgn_nasty/python-chess/anastasian-lewis.pgn", 0, {"null_move": 1}),
        ("pgn_nasty/python-chess/uci-moves.pgn", 1, {}),
        ("pgn_nasty/pychess/atomic.pgn", 0, {"variant": 10}),
        ("pgn_nasty/pychess/badpgn.pgn", 0, {"bad_move": 1}),
        ("pgn_nasty/pychess/bilbao.pgn", 1, {}),
        ("pgn_nasty/pychess/chess960rwch.pgn", 0, {"variant": 20}),
        ("pgn_nasty/pgn-extract/barnes-horton.pgn", 1, {}),
        ("pgn_nasty/pgn-extract/nested-comment.pgn", 0, {"bad_move": 1}),
        ("pgn_nasty/pgn-extract/test-fuzzydepth.pgn", 4, {}),
        ("pgn_nasty/pgn-extract/test-long-line.pgn", 1, {}),
        ("pgn_nasty/pgn-extract/test-nobadresults.pgn", 0, {"no_moves": 9}),
    ],
)
def test_what_a_file_holds(shared_data: Path, name: str, sound: int, skipped: dict[str, int]) -> None:
    games, defects = read(shared_data / name)
    assert (len(games), dict(defects)) == (sound, skipped)


def test_the_encoding_of_names_does_not_change_a_game(shared_data: Path) -> None:
    folder = shared_data / "pgn_annotated_misc" / "chesslib"
    ansi, utf8 = (read(folder / f"Morphy_{encoding}.pgn")[0] for encoding in ("ANSI", "UTF8"))
    assert [game.id for game in ansi] == [game.id for game in utf8]
    assert [game.moves for game in ansi] == [game.moves for game in utf8]


def test_what_is_left_of_a_cut_file_is_its_beginning(shared_data: Path) -> None:
    folder = shared_data / "pgn_compressed_and_derived"
    whole, cut = (read(folder / name)[0] for name in ("lichess_400.pgn", "truncated.pgn.zst"))
    assert [game.id for game in cut] == [game.id for game in whole[: len(cut)]]
    assert [game.moves for game in cut] == [game.moves for game in whole[: len(cut)]]


def all_of(shared_data: Path) -> list[Path]:
    folders = ("pgn_nasty", "pgn_compressed_and_derived", "pgn_annotated_misc", "pgn_lichess_eval_clk")
    paths = (path for name in folders for path in (shared_data / name).rglob("*") if path.is_file())
    again = {f"lichess_400.pgn.{suffix}" for suffix in ("zst", "gz", "bz2")} | {"Morphy_UTF8.pgn"}
    return sorted(path for path in paths if path.name not in again)


def moves_of(game: Game) -> tuple[chess.Move, ...]:
    return tuple(move for _, _, move in game.replay())


def test_python_chess_agrees_about_each_game_by_itself(shared_data: Path) -> None:
    """What we read of a text it reads too, to the end of it; what we skip is wrong to it too."""
    natively = 0
    for path in all_of(shared_data):
        source, raws = identify(path), list(read_raw_games(path))
        for raw, played in zip(raws, native.read_games(raws, source), strict=True):
            text = io.StringIO(raw.text)
            theirs, ours = chess.pgn.read_game(text), parse_game(raw, source)
            natively += isinstance(played, NativeGame)
            assert (played if isinstance(played, SkippedGame) else played.game) == ours
            if isinstance(ours, Game):
                assert theirs is not None
                assert not theirs.errors
                assert tuple(theirs.mainline_moves()) == moves_of(ours), (path, raw)
                assert chess.pgn.read_game(text) is None, (path, raw)
            elif ours.defect is Defect.BAD_MOVE:
                assert theirs is not None
                assert theirs.errors or ours.detail.startswith(("no move", "'")), ours
    assert natively > 1000 or not native.AVAILABLE


def test_no_game_that_python_chess_finds_in_a_file_is_lost_in_silence(shared_data: Path) -> None:
    """Each sound game of its own reading of the file is ours, or we have named a game that begins like it."""
    for path in all_of(shared_data):
        source = identify(path)
        parsed = [parse_game(raw, source) for raw in read_raw_games(path)]
        games = {moves_of(game) for game in parsed if isinstance(game, Game)}
        named = sum(isinstance(game, SkippedGame) for game in parsed)
        lost = [game for game in sound_games(path) if tuple(game.mainline_moves()) not in games]
        assert len(lost) <= named, path
        for game in lost:
            variant = game.headers.get("Variant", "").lower() not in STANDARD_NAMES
            null_move = not all(game.mainline_moves())
            swallowed = path.name == "unterminated_comment_then_game.pgn"
            assert variant or null_move or swallowed, (path, game.headers)


def sound_games(path: Path) -> list[chess.pgn.Game]:
    """What python-chess finds nothing wrong with, of the first `GAMES` that it reads in the whole file."""
    if path.name == "truncated.pgn.zst":
        return []
    text = io.StringIO(decode(b"".join(pieces_of(path)[0].blocks())), newline=None)
    games = islice(iter(lambda: chess.pgn.read_game(text), None), GAMES)
    return [game for game in games if not game.errors and game.variations]


def test_chess960_is_read_where_it_is_asked_for(shared_data: Path) -> None:
    for name in ("pychess/chess960rwch.pgn", "python-chess/cutechess-fischerrandom.pgn"):
        source = identify(path := shared_data / "pgn_nasty" / name)
        for raw in read_raw_games(path):
            ours, theirs = parse_game(raw, source, chess960=True), chess.pgn.read_game(io.StringIO(raw.text))
            assert isinstance(ours, Game)
            assert theirs is not None
            assert ours.chess960
            assert moves_of(ours) == tuple(theirs.mainline_moves())
            board = theirs.board()
            for ply, move in enumerate(theirs.mainline_moves()):
                assert ours.board(ply).fen() == board.fen()
                board.push(move)


def test_exams_of_every_kind_are_read(shared_data: Path) -> None:
    names = ["puzzles_lichess_kagi/puzzles_dev_999.csv", "puzzles_mate_in_n/mate_in_2.pgn"]
    names += ["epd_suites/sarona/wac.epd", "epd_suites/sarona/nite-odds-masterlist-1000.epd"]
    _, exams = read_evaluation_files([str(shared_data / name) for name in names])
    assert [exam.positions for exam in exams] == [5869, 664, 299, 1000]
