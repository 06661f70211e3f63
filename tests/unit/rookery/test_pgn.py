"""The reader of PGN: figurines are pieces, and whatever else is no move is named."""

import chess
import pytest

from rookery.pgn.rawgame import RawGame
from rookery.pgn.reader import read_game, read_games

NO_KING = "8/8/8/8/8/8/4P3/4K3 w - - 0 1"
IN_CHECK = "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1"
CHESS960 = "bqnbnrkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBNRKR w HFhf - 0 1"


def ucis(text: str) -> str:
    game = read_game(text)
    assert not game.faults
    return " ".join(move.uci() for move in game.moves)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("1. e4 e5 2. ♘f3 ♞c6 3. ♗b5 ♟a6 4. ♗\u00d7c6", "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5c6"),
        ("1. ♙e2\u2013e4 ♞\ufe0ef6 {♘d5?} 2. ♕h5", "e2e4 g8f6 d1h5"),
        ("1. Pe4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4. O\u2013O", "e2e4 e7e5 g1f3 b8c6 f1c4 f8c5 e1g1"),
        ("1. e4 ± e5 … 2. Nf3 ∞ 2…Nc6 ½-½", "e2e4 e7e5 g1f3 b8c6"),
        ('\ufeff% Sf3\n[White "Sf3"]\n; Sf3\n\n1. e4 {Sf3} e5 ; Sf3\n% Sf3\n2. Nf3 $146', "e2e4 e7e5 g1f3"),
        ("1. e4 (1. d4 (1. c4 {)} e5) d5) 1... e5 *", "e2e4 e7e5"),
    ],
)
def test_ways_to_write_moves(text: str, moves: str) -> None:
    assert ucis(text) == moves


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_files_in_any_encoding_have_the_same_games(encoding: str) -> None:
    text = '[Event "?"]\n[White "Gr\u00fcnfeld"]\n\n1. e4 *\n\n[Event "?"]\n\n1. d4 {\u00e9} d5 *\n'
    games = list(read_games(text.encode(encoding)))
    assert [(game.tags.get("White"), len(game.moves), game.faults) for game in games] == [
        ("Gr\u00fcnfeld", 1, ()),
        (None, 2, ()),
    ]


@pytest.mark.parametrize("letter", ["S", "C", "\u041a", "П", "馬", "Λ", "\uff2e", "Ñ", "ª", "🨄", "²"])
def test_a_letter_of_another_language_is_no_pawn_move(letter: str) -> None:
    """German, Spanish, Cyrillic, Chinese, Greek, full-width, Latin-1 and a symbol that is no figurine."""
    game = read_game(f"1. e4 e5 2. {letter}f3 Nc6 *")
    assert [move.uci() for move in game.moves] == ["e2e4", "e7e5"]
    assert [str(fault) for fault in game.faults] == [f"bad_move: no move: '{letter}f3'"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("1. e4 -- 2. d4", "null_move: null move in"),
        ("1. e4 1-0 e5", "bad_move: 'e7e5' after the result"),
        ("1. e4 e5 2. ♙g1f3", "bad_move: no pawn move: 'Pg1f3'"),
        ("1. e4 P@e5", "bad_move: invalid san: '@e5'"),
        ("1. e4 (1. d4 d5 1... e5 *", "open_variation: a side line is never closed"),
        ("1. e4) e5", "open_variation: a side line is closed"),
        ("1. e4 (1. Sd4) e5", "bad_move: no move: 'Sd4'"),
        ("1. e4 {e5", "open_comment"),
        ("1. e4 e5 2. ?f3 ?c6", "bad_move: no move: '.f3'"),
        ("1. e4 e5 2. =f3", "bad_move: no move: '=f3'"),
        ("1. e4 e5 2. xf3", "bad_move: no pawn move: 'xf3'"),
        ("1. e4 -f5", "bad_move: no pawn move: '-f5'"),
        (f'[FEN "{NO_KING}"]\n\n1. e4', "bad_start: .*no black king"),
        (f'[FEN "{IN_CHECK}"]\n\n1. Re3', "bad_start: .*opposite check"),
        (f'[Event "x"] [FEN "{CHESS960}"]\n\n1. e4', "bad_start: a tag FEN"),
        (f'[FEN "{CHESS960}"]\n\n1. e4', "variant: Chess960 castling rights"),
        ('[Variant "chess960"]\n\n1. e4', "variant: variant 'chess960'"),
        ('[Variant "Atomic"]\n\n1. e4', "variant: variant 'Atomic'"),
        ("1. " + "x" * 50_000, "bad_move: no move: 'xxx"),
        ('[Variant "' + "x" * 50_000 + '"]\n\n1. e4', "variant: variant 'xxx"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{fault}") as named:
        raise read_game(text).faults[0]
    assert len(str(named.value)) < 400


def test_a_game_that_is_broken_changes_no_other() -> None:
    data = b'[Event "1"]\n\n1. e4 (1. d4 {\n\n[Event "2"]\n\n1. c4 *\n\n[Event "3"]\n\n1. Sf3 *\n'
    games = [([move.uci() for move in game.moves], len(game.faults)) for game in read_games(data)]
    assert games == [(["e2e4"], 1), (["c2c4"], 0), ([], 1)]


def test_comments_come_with_their_boards_in_the_order_of_the_file() -> None:
    comments: list[tuple[str, str]] = []

    def add(board: chess.Board, comment: str) -> None:
        comments.append((comment, board.peek().uci() if board.move_stack else ""))

    main, sides = (
        "1. e4 {b} e5 %s {e\n\nf} 2. Ke2 {g} (2. Nf3 {h})",
        "(1... c5 {c} 2. Sf3 Sf6 {no} (2. d4 {no})) ({d} 1... c6)",
    )
    game = read_game("{a} " + main % sides, on_comment=add)
    assert comments == [
        ("a", ""),
        ("b", "e2e4"),
        ("c", "c7c5"),
        ("d", "e2e4"),
        ("e\n\nf", "e7e5"),
        ("g", "e1e2"),
        ("h", "g1f3"),
    ]
    assert ([move.uci() for move in game.moves], len(game.faults)) == (["e2e4", "e7e5", "e1e2"], 1)


def test_the_same_moves_have_the_same_id_in_figurines() -> None:
    ids = [RawGame(1, f"1. e4 e5 2. {move}".encode()).id for move in ("Nf3", "♘f3", "♞f3", "f3")]
    assert ids[0] == ids[1] == ids[2] != ids[3]
