"""Real and deliberately broken PGN files of others: every sound game found, every broken one named."""

from collections import Counter
from pathlib import Path

import pytest

from services.data.files import identify
from services.data.games import Game, SkippedGame, parse
from services.data.splitter import read_raw_games

pytestmark = pytest.mark.shared_data

LICHESS = 400


def read(path: Path) -> tuple[list[Game], Counter[str]]:
    source = identify(path)
    parsed = [parse(raw, source) for raw in read_raw_games(path)]
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
        ("pgn_nasty/pychess/badpgn.pgn", 0, {"no_moves": 1}),
        ("pgn_nasty/pychess/bilbao.pgn", 1, {}),
        ("pgn_nasty/pychess/chess960rwch.pgn", 0, {"variant": 20}),
        ("pgn_nasty/pgn-extract/barnes-horton.pgn", 1, {}),
        ("pgn_nasty/pgn-extract/nested-comment.pgn", 0, {"null_move": 1}),
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


def test_nothing_of_it_stops_the_reader(shared_data: Path) -> None:
    files = sorted((shared_data / "pgn_nasty").rglob("*.pgn"))
    assert len(files) > 80
    for path in files:
        games, skipped = read(path)
        assert games or skipped, path
