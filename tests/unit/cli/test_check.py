"""`rookery check`: what it marks, counts and returns, for texts and for comments of games."""

import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from rookery.command_line import main
from tests.conftest import ROOT

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
TEXT = "The knight on f3 attacks the queen on g5, and White is a rook up. I like it! White is winning."
GAME = """[White "A"]
[Black "B"]

{White can still castle on either side.} 1. e4 {[%clk 0:10:00] White's king is still in
the centre.} e5 2. Nf3 Qg5 {The knight on f3 attacks the queen on g5, and White has a passed pawn on e4.}
(2... Nc6 {The knight on c6 defends the pawn on e5. Black has won a pawn.}
3. Bb5 {The bishop on b5 pins the knight on c6 to the king on e8.}) 3. Nxg5 {White's knight on f3 can go.
Nxg5 takes the queen on g5.} *
"""


@pytest.fixture
def game(tmp_path: Path) -> Path:
    path = tmp_path / "game.pgn"
    path.write_text(GAME)
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(["check", *argv])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_text_is_marked_and_its_false_claims_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, TEXT, "--fen", FEN)
    assert status == 1
    assert out.splitlines() == [
        "{+The knight on f3 attacks the queen on g5+}, and {-White is a rook up-}. {?I like it!?} "
        "{~White is winning~}.",
        "  false: White is a rook up (material ahead)",
        "",
        "3 sentences, 1 of them not read; claims: 1 true, 1 false, 1 open",
    ]


def test_a_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "White is \x1b[2J\x9b31mwinning.\u202e", "--fen", FEN)
    assert r"\u001b[2J\u009b31m" in out
    (tmp_path / "g.pgn").write_text('[White "\x1b[31m"]\n\n1. e4 e4 {It is \x1bWhite\'s move.} *\n')
    _, out, err = run(capsys, str(tmp_path / "g.pgn"), "--all")
    assert r"game 1, \u001b[31m - ?" in err
    assert "\x1b" not in out + err
    _, _, err = run(capsys, str(tmp_path / "\x1b[2J.pgn"))
    assert "\x1b" not in err


def test_a_true_text_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "The knight on f3 attacks the queen on g5.", "--fen", FEN)[0] == 0


def test_a_text_may_come_from_stdin_or_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shown = run(capsys, TEXT, "--fen", FEN)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert run(capsys, "-", "--fen", FEN) == shown
    (tmp_path / "text.txt").write_text(TEXT)
    assert run(capsys, "--file", str(tmp_path / "text.txt"), "--fen", FEN) == shown
    assert run(capsys, str(tmp_path / "text.txt"), "--fen", FEN) == shown


def test_a_game_may_come_from_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, game: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GAME.encode())))
    assert run(capsys, "-") == run(capsys, str(game))


def test_a_text_on_stdin_without_a_position_is_no_game(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    status, _, error = run(capsys, "-")
    assert (status, "a text needs a position: give --fen" in error) == (2, True)


def test_a_text_may_be_longer_than_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "König auf e1, é" * 20, "--fen", FEN)[0] == 0


def test_json_says_where_each_claim_is(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(run(capsys, TEXT, "--fen", FEN, "--json")[1])
    assert {name: shown[name] for name in ("sentences", "unread", "true", "false", "open")} == {
        "sentences": 3,
        "unread": 1,
        "true": 1,
        "false": 1,
        "open": 1,
    }
    assert [TEXT[claim["start"] : claim["end"]] for claim in shown["claims"]] == [
        claim["words"] for claim in shown["claims"]
    ]
    assert [TEXT[start:end] for start, end in shown["unread_sentences"]] == ["I like it!"]


def test_of_a_game_the_comments_with_mistakes_are_shown(
    capsys: pytest.CaptureFixture[str], game: Path
) -> None:
    status, out, _ = run(capsys, str(game))
    assert status == 1
    assert [line for line in out.splitlines() if line.startswith(("game", "  false"))] == [
        "game 1, A - B, 2...Qg5",
        "  false: White has a passed pawn on e4 (passed pawn)",
        "game 1, A - B, 3.Bb5",  # the pawn on d7 is between
        "  false: The bishop on b5 pins the knight on c6 to the king on e8 (pin)",
    ]
    assert out.splitlines()[-1].startswith("6 comments, ")


def test_every_comment_is_read_at_its_place(capsys: pytest.CaptureFixture[str], game: Path) -> None:
    lines = [json.loads(line) for line in run(capsys, str(game), "--json")[1].splitlines()]
    assert [line["place"].split(", ")[-1] for line in lines] == [
        *("before the first move", "1.e4", "2...Qg5", "2...Nc6", "3.Bb5", "3.Nxg5")
    ]
    claims = {line["place"].split(", ")[-1]: [claim["true"] for claim in line["claims"]] for line in lines}
    assert claims["1.e4"] == [True]  # after the clock, over the end of a line
    assert claims["2...Nc6"] == [True, None]  # nothing was won, but the text may be about other moves
    assert claims["3.Nxg5"][-1] is True  # a move of the position before


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["text"], "--fen"),
        ([], "give TEXT"),
        (["text", "--file", "file"], "give TEXT"),
        (["--file", "game.pgn", "--fen", FEN], "drop --fen"),
    ],
)
def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert message in err


@pytest.mark.parametrize(
    ("argv", "quoted"),
    [(["text", "--fen", "8/8"], "'8/8'"), (["no.pgn"], "'no.pgn'"), (["e.pgn"], "no game")],
)
def test_bad_input_is_quoted(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: list[str],
    quoted: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e.pgn").write_text("")
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert quoted in err


def test_an_illegal_move_is_reported_and_the_rest_is_checked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "game.pgn"
    path.write_text(
        "1. e4 {White's king is still in the centre.} e5 2. Ke3 *\n\n1. d4 {White is a rook up.} *\n"
    )
    status, out, err = run(capsys, str(path))
    assert status == 1
    assert "game 1, ? - ?: not all of it was read: bad_move: illegal san: 'Ke3'" in err
    assert "game 2, ? - ?, 1.d4" in out


def test_comments_on_moves_that_are_not_read_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """German `Sf3` is no pawn move. A side line is left where it cannot be read, and the game goes on."""
    path = tmp_path / "game.pgn"
    false = "{White is a rook up.}"
    path.write_text(
        "1. e4 e5 2. Sf3 {The knight on f3 attacks the pawn on e5.} *\n\n"
        f"1. e4 (1. d4 d5 2. Sf3 {false} 2... Sf6) e5 {false} 2. ♘f3 {{The knight on f3 attacks e5.}} *\n"
    )
    status, out, err = run(capsys, str(path), "--all")
    assert status == 1
    assert [line.split(", ")[-1] for line in out.splitlines() if line.startswith("game")] == [
        "1...e5",
        "2.Nf3",
    ]
    assert err.count("not all of it was read: bad_move: no move: 'Sf3'") == 2


def test_the_example_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "launcher" / "README.md").read_text()
    example = re.search(r"\$ rookery (check .*?--fen \".*?\")\n(.*?)\$", readme, re.DOTALL)
    assert example is not None
    main(shlex.split(example[1].replace("\\\n", "")))
    assert capsys.readouterr().out == example[2]
