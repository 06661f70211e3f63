import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.pgn.rawgame import MAX_GAME_BYTES, Defect, RawGame
from rookery.pgn.reader import read_game
from rookery.pgn.splitter import split
from tests.unit.data.texts import MATE, RUY, game, outline, raw_games


def texts(path: Path, data: str) -> list[str]:
    return [raw.text for raw in raw_games(path, data)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "games.pgn"


def test_games_are_numbered_and_whole(path: Path) -> None:
    first, second = raw_games(path, game(RUY) + game(MATE))
    assert (first.number, second.number) == (1, 2)
    assert first.text == f'[Event "test"]\n{RUY}\n'
    assert second.text == f'[Event "test"]\n{MATE}\n'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("no blank line at all", game(RUY).replace("\n\n", "\n") + game(MATE).replace("\n\n", "\n")),
        ("blank line among the tags", '[Event "A"]\n\n[Site "B"]\n\n1. e4 *\n\n' + game(MATE)),
        ("blank lines before the moves", '[Event "A"]\n\n\n\n1. e4 *\n\n\n\n' + game(MATE)),
        ("blank line inside the moves", game("1. e4 e5\n\n2. Nf3 Nc6 *") + game(MATE)),
        ("blank line inside a comment", game("1. e4 {first\n\nsecond} e5 *") + game(MATE)),
        ("comment before the moves", game("{ Played in a hurry. }\n\n1. e4 e5 *") + game(MATE)),
        ("comment after the result", game("1. e4 e5 *\n{ Peace. }") + game(MATE)),
        ("variation on a line of its own", game("1. e4 e5 2. Nf3 *\n(2. f4)") + game(MATE)),
        ("tag inside a comment", game('1. e4 {see\n[Event "other"]\nthere} e5 *') + game(MATE)),
        ("result inside a comment", game("1. e4 {was once 1-0\n} e5\n2. Nf3 *") + game(MATE)),
        ("brace after a semicolon", game("1. e4 ; a { brace\ne5 *") + game(MATE)),
        ("escaped line", game("1. e4\n%{ private\ne5 *") + game(MATE)),
        ("games without tags", "1. e4 e5 *\n\n1. d4 d5 *\n"),
        ("games without tags, gaps or numbers", "e4 e5 *\nd4 d5 1-0\n"),
        ("games without tags or results", "1. e4 e5\n\n1. d4 d5\n"),
        ("no line end", "1. e4 e5 *\n\n1. d4 d5 *"),
    ],
)
def test_two_games_are_two(path: Path, name: str, data: str) -> None:
    assert len(raw_games(path, data)) == 2, name


@pytest.mark.parametrize("part", ["{", "}{", "; {", "(", "[", "1."])
def test_the_time_grows_as_the_text(part: str) -> None:
    def seconds(text: str) -> float:
        start = time.process_time()
        games = [read_game(game.text).moves for game in split(text.encode())]
        assert len(games) == 1
        return time.process_time() - start

    size = 60_000
    comments = seconds("1. e4 " + "{}" * (size // 2))
    assert seconds("1. e4 " + part * (size // len(part))) < 20 * comments


def test_games_that_have_only_tags(path: Path) -> None:
    assert len(raw_games(path, '[Event "A"]\n[Site "x"]\n\n[Event "B"]\n[Site "y"]\n')) == 2


def test_an_open_comment_ends_with_its_game(path: Path) -> None:
    broken, sound = raw_games(path, game("1. e4 { never closed e5 2. Nf3 *") + game(MATE))
    assert broken.defect is Defect.OPEN_COMMENT
    assert outline([sound]) == [(2, f'[Event "test"]\n{MATE}\n', None)]


def test_an_endless_game_is_passed_over_and_not_kept(path: Path) -> None:
    flood = "1. e4 " + "{ and so on }\n" * (MAX_GAME_BYTES // 10)
    long, sound = raw_games(path, game(flood) + game(MATE))
    assert long.defect is Defect.TOO_LONG
    assert len(long.data) <= MAX_GAME_BYTES
    assert sound.defect is None


def test_the_id_is_the_moves() -> None:
    plain = RawGame(1, b"1. e4 e5 2. Nf3 *")
    same = [
        '[White "Nf3"]\n1. e4 e5 2. Nf3 *',
        "1. e4! {b4 was better} e5 ; or c5\n2. Nf3+ 1-0",
        "1.e4 e5 2.Nf3",
        "1. e4 (1. d4 d5 (1... Nf6 {:-)} 2. c4) 2. c4) 1... e5 2. Nf3 (2. f4) *",
        "1. e4(1. d4)e5 2. Nf3",
        "1. e4 ) (1. d4) e5 2. Nf3",
    ]
    other = ["1. e4 e5 2. Nf3 Nc6 *", '[FEN "x"]\n1. e4 e5 2. Nf3 *', ""]
    assert {RawGame(7, text.encode()).id for text in same} == {plain.id}
    assert plain.id not in {RawGame(1, text.encode()).id for text in other}
    assert RawGame(1, b"5. 0-0 0-0-0 1-0").id == RawGame(1, b"5. O-O O-O-O 1-0").id


COMMENT = st.text(alphabet="ab {[;(\n1-0*", max_size=20).filter(lambda text: "\n\n[" not in text)


@given(comments=st.lists(COMMENT, min_size=1, max_size=6), newline=st.sampled_from(["\n", "\r\n", "\r"]))
def test_no_comment_joins_or_parts_games(
    tmp_path_factory: pytest.TempPathFactory, comments: list[str], newline: str
) -> None:
    data = "".join(game(f"1. e4 {{{comment}}} e5 2. Nf3 *") for comment in comments)
    path = tmp_path_factory.getbasetemp() / "comments.pgn"
    games = raw_games(path, data.replace("\n", newline))
    assert len(games) == len(comments)
    assert len({raw.id for raw in games}) == 1
    assert not any(raw.defect for raw in games)


@given(st.text(alphabet='[]{}();"% \nabe4N1.*-', max_size=200))
def test_any_text_is_cut_without_loss_of_count(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    games = raw_games(tmp_path_factory.getbasetemp() / "any.pgn", text)
    assert [raw.number for raw in games] == list(range(1, len(games) + 1))
