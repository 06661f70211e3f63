"""`rookery annotate`: what it writes is read back, by python-chess and by the reader of claims."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import chess.pgn
import pytest

from launcher.check import CheckSettings, check
from rookery.command_line import main
from tests.conftest import ROOT

GAME = """[White "A"]
[Black "B"]
[Opening "Italian Game: Blackburne-Kostić Gambit"]

1. e4 {a comment that goes} e5 2. Nf3 Nc6 3. Bc4 Nd4 4. Nxe5 Qg5 5. Nxf7 Qxg2 6. Rf1 Qxe4+ 7. Be2 Nf3# 0-1
"""


@pytest.mark.stockfish
@pytest.mark.parametrize("voice", ["annotator", "calculator", "coach", "notebook"])
def test_an_annotated_game_is_read_back_and_true(
    voice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "game.pgn").write_text(GAME, encoding="utf-8")
    argv = ["annotate", str(tmp_path / "game.pgn"), "--voice", voice, "--nodes", "2000", "--evals"]
    assert main(argv) == 0
    text = capsys.readouterr().out
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None
    assert not game.errors
    nodes = list(game.mainline())
    assert len(nodes) == 14
    assert nodes[-1].board().is_checkmate()
    assert game.headers["Opening"].startswith("Italian")
    blunder = nodes[8]
    assert chess.pgn.NAG_BLUNDER in blunder.nags
    assert blunder.parent is not None
    assert len(blunder.parent.variations) == 2
    assert sum(bool(node.comment) for node in nodes) > 10
    assert nodes[0].eval() is not None
    (tmp_path / "annotated.pgn").write_text(text, encoding="utf-8")
    assert check(CheckSettings(text=str(tmp_path / "annotated.pgn"))) == 0
    assert " 0 false" in capsys.readouterr().out


def test_what_is_no_game_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.pgn").write_text("")
    for path, why in ((tmp_path / "none.pgn", "cannot read"), (tmp_path / "empty.pgn", "no game with moves")):
        assert main(["annotate", str(path)]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.stockfish
@pytest.mark.parametrize(
    ("fen", "mate"), [("7k/8/8/8/8/8/R7/1R4K1 w - - 0 1", "#1"), ("1r4k1/r7/8/8/8/8/8/7K b - - 0 1", "#-1")]
)
def test_a_mate_is_counted_after_the_move(
    fen: str, mate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    move = "1. Rb7" if " w " in fen else "1... Rb2"
    (tmp_path / "mate.pgn").write_text(f'[SetUp "1"]\n[FEN "{fen}"]\n[Result "1-0 }} foo"]\n\n{move} *\n')
    assert main(["annotate", str(tmp_path / "mate.pgn"), "--nodes", "2000", "--evals"]) == 0
    text = capsys.readouterr().out
    assert f"[%eval {mate}]" in text
    assert text.rstrip().endswith("*")


@pytest.mark.stockfish
def test_a_terminal_shows_the_progress_and_the_file_only_the_game(tmp_path: Path) -> None:
    (tmp_path / "game.pgn").write_text(GAME, encoding="utf-8")
    argv = [sys.executable, "-m", "launcher", "annotate", str(tmp_path / "game.pgn"), "--nodes", "2000"]
    main_end, terminal = pty.openpty()
    with (tmp_path / "annotated.pgn").open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=ROOT, stdout=out, stderr=terminal, env={**os.environ, "TERM": "xterm"}
        )
    os.close(terminal)
    shown = b""
    while chunk := _read(main_end):
        shown += chunk
    assert process.wait() == 0
    os.close(main_end)
    assert b"game 1, moves" in shown
    assert b"100%" in shown
    assert (tmp_path / "annotated.pgn").read_text(encoding="utf-8").startswith('[White "A"]')


def _read(terminal: int) -> bytes:
    """What a terminal shows next; empty when the process has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
