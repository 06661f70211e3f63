"""The native parser against python-chess, the referee: the same game, or the same reason for none."""

import random
from itertools import islice

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.pgn import native
from chess_datasets.pgn.games import Game, SkippedGame, SoundGame
from chess_datasets.pgn.native import NativeGame, read_games
from chess_datasets.pgn.parser import parse_game
from chess_datasets.pgn.reader import read_raw_games
from rookery.errors import RookeryError
from rookery.pgn.rawgame import RawGame
from tests.unit.data.conftest import SAMPLE
from tests.unit.data.texts import ENDING, ENDING_FEN, RUY, SOURCE, game

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason=f"needs {native.PACKAGE}: it is not installed")

SHUFFLE = "1. Nf3 Nf6 2. Ng1 Ng8 " * 10


def raws(*texts: str) -> list[RawGame]:
    return [RawGame(number, text.encode()) for number, text in enumerate(texts, start=1)]


def read(*texts: str) -> list[SoundGame | SkippedGame]:
    return list(read_games(raws(*texts), SOURCE))


def outcome(played: SoundGame | SkippedGame) -> Game | SkippedGame:
    return played if isinstance(played, SkippedGame) else played.game


def assert_same(*texts: str) -> None:
    assert [outcome(played) for played in read(*texts)] == [parse_game(raw, SOURCE) for raw in raws(*texts)]


def walk(rng: random.Random, plies: int) -> list[str]:
    """Random moves, even when the rules have ended the game."""
    board, sans = chess.Board(), []
    while len(sans) < plies and (moves := list(board.legal_moves)):
        sans.append(board.san_and_push(rng.choice(moves)))
    return sans


NOISE = [
    "",
    "x",
    "+",
    "#",
    "!",
    "?!",
    "=Q",
    "=N",
    "0-0",
    "--",
    "Z0",
    "e4",
    "Nf3",
    "O-O",
    "1-0",
    "*",
    "(",
    "{",
    "}",
]
NOISE += [
    " $3",
    " { a comment }",
    "\n{ one }\n",
    "0000",
    ";",
    "e.p.",
    "ep",
    "\n",
    "1.",
    "..",
    "K",
    "a1",
    "e8=Q",
    "N@f3",
    *("(1. d4)", ")", "♘", "♙", "\u2013", "\u00d7", "S", "Ñ", "½-½", "…", "[", "P"),
]


@given(seed=st.integers(0, 1 << 32), data=st.data())
def test_whatever_is_wrong_with_a_game(seed: int, data: st.DataObject) -> None:
    words = walk(random.Random(seed), data.draw(st.integers(1, 50)))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        at = data.draw(st.integers(0, len(words[place])))
        words[place] = words[place][:at] + data.draw(st.sampled_from(NOISE)) + words[place][at:]
    numbered = (f"{i // 2 + 1}. {word}" if i % 2 == 0 else word for i, word in enumerate(words))
    assert_same(game(" ".join(numbered) + " 1-0", WhiteElo="1500", BlackElo="?"))


@pytest.mark.parametrize(
    "text",
    [
        game(RUY),
        game(RUY).replace("\n", "\r\n"),
        "e4 e5 Nf3",
        game("1. e4 { [%eval 0.3] [%clk 0:03:00] } 1... e5!? $14 2. Nf3 Nc6 *"),
        game("1. e4 {one}e5{two} 2. Nf3 *"),
        game("1. e4 c6 2. e5 d5 3. exd6ep Nf6 *"),
        game("1. e4 c6 2. e5 d5 3. exd6!e.p. {x} Nf6 *"),
        game("1. e4 c6 2. e5 d5 3. exd6 {x} ep Nf6 *"),
        game("1. N{c}f3 *"),
        game("1. e4 d5 2. xd5 *"),
        game("1. e4 d5 2.xd5 *"),
        game("1. d4 d5 2. c4 c6 3. Nc3 e6 4. Qb3 Nf6 $3xb6 5. cxd5 exd5 *"),
        game("1. e4$99999e5 2. Nf3 *"),
        game("1. e4 d5! 2. exd5 Qxd5 *"),
        game("1. e4\n{c}\n1... e5\n\n2. Nf3 *"),
        game("1. e4 e5 2. f3 (2. Nf3 Nc6) d5 *"),
        game("1. e4 e5 * 2. Nf3"),
        game("1. e4 -- 2. d4 *"),
        game("1. e4 0000 *"),
        game("1. Nf3 Nf6 2. g3 g6 3. Bg2 Bg7 4. 0-0 0-0 1/2-1/2"),
        game("1. e4 {open"),
        game("*"),
        "",
        game(ENDING, FEN=ENDING_FEN),
        game(Variant="Chess960"),
        game(f"{SHUFFLE} *"),
        game("1. e4 d5 2. exd5 Qxd5 3. Ke2 Qe4# *"),
    ],
)
def test_odd_ways_to_write_a_game(text: str) -> None:
    assert_same(text)


def test_ordinary_games_are_read_natively() -> None:
    """Lest all of this be a comparison of python-chess with itself."""
    texts = [game(RUY), game("1. e4 {c} e5 2. Nf3! $1 Nc6 1-0"), "d4 d5 *"]
    assert all(isinstance(played, NativeGame) for played in read(*texts))


def test_bare_kings_repetitions_and_quiet_moves_end_a_game() -> None:
    rng, kings = random.Random(3), game(f"{SHUFFLE} *")
    shuffles = [game(" ".join(walk(rng, 400)) + " *") for _ in range(6)]
    assert_same(kings, *shuffles)
    assert any(255 in played.game.phases for played in read(*shuffles) if not isinstance(played, SkippedGame))


@pytest.mark.parametrize("first", [0, 1500])
def test_every_position_of_real_games(first: int) -> None:
    sample = list(islice(read_raw_games(SAMPLE), first, first + 40))
    for played in read_games(sample, SOURCE):
        assert isinstance(played, NativeGame)
        for ply, board, _ in played.game.replay():
            assert played.fen(ply) == board.fen()
            assert played.choices(ply) == board.legal_moves.count()


def test_without_it_python_chess_reads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    natively = read(game(RUY))
    monkeypatch.setattr(native, "AVAILABLE", False)
    [played] = read(game(RUY))
    assert type(played) is SoundGame
    assert played.game == outcome(natively[0])
    assert (played.fen(3), played.choices(3)) == (natively[0].fen(3), natively[0].choices(3))  # type: ignore[union-attr]


def test_the_referee_stops_a_parser_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "REFEREED", 1)
    monkeypatch.setattr(native, "id_of", lambda start, moves: "0" * 16)
    with pytest.raises(RookeryError, match=r"games\.pgn game 1 at byte 0: .* and python-chess disagree"):
        read(game(RUY))
