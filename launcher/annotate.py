"""`rookery annotate`: comments the games of a PGN, each claim checked before it is written.

A move that costs win probability gets a mark, and the engine's line instead of it as a side line, played to a
quiet point. Other moves get what speaks most for them. Nothing is said that the reader of claims does not
read and find true.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import chess
import chess.engine
import chess.pgn
from pydantic import Field, PositiveInt
from pydantic_settings import CliPositionalArg
from rich.progress import Progress

from commentary import Score, Study, move_statements, read
from rookery.engines import EnginePool, find_engine
from rookery.errors import InvalidInput, SetupError
from rookery.games import SCORES
from rookery.masking import printable
from rookery.pgn.reader import PgnGame, read_games
from rookery.settings import Settings
from rookery.terminal import SafeConsole
from rookery.uci import Line, Query

_MARKS = (
    (0.30, chess.pgn.NAG_BLUNDER, "A blunder"),
    (0.20, chess.pgn.NAG_MISTAKE, "A mistake"),
    (0.10, chess.pgn.NAG_DUBIOUS_MOVE, "Not the best"),
)
"""Regret in win probability from which a move is marked (lichess-org/lila, Advice.scala), the mark, and its
name."""

_WEIGHTY = 2.0
"""The weight from which what a move does is worth a comment."""

_LONGEST_LINE = 12
_MOST_BYTES = 20_000_000
_DEADLINE_S = 60.0


class AnnotatePgnSettings(Settings, env_prefix="ANNOTATE_"):
    """Comment the games of a PGN file: marks, better lines and what speaks for each move, as a PGN on stdout.

    Comments and side lines of the file are left out, and what cannot be read is named on stderr. On a
    terminal, stderr shows the progress.

    Examples:
      rookery annotate game.pgn > annotated.pgn
      rookery annotate game.pgn --voice coach --evals --nodes 200000
    """

    pgn: CliPositionalArg[Path]
    """The PGN file."""
    voice: Literal["annotator", "calculator", "coach", "notebook"] = "annotator"
    """Who comments."""
    nodes: PositiveInt = 50_000
    """Stockfish nodes per search; each move takes two."""
    evals: bool = False
    """Also write the engine's evaluation of each move, as [%eval]."""
    seed: int = Field(default=0, ge=0)
    """Chooses among the words for what is said."""
    engine_path: Path | None = None
    """Stockfish; by default it is looked for."""


def annotate(settings: AnnotatePgnSettings) -> int:
    """Prints the games and returns the exit status. Raises `SetupError` if the file cannot be read, or has no
    game; `EngineFault` if the engine fails."""
    try:
        size = settings.pgn.stat().st_size
        data = settings.pgn.read_bytes() if size <= _MOST_BYTES else b""
    except OSError as error:
        raise SetupError(f"cannot read {str(settings.pgn)!r}: {error.strerror}") from error
    if size > _MOST_BYTES:
        raise SetupError(f"{str(settings.pgn)!r} has {size:,} bytes, more than {_MOST_BYTES:,}")
    return asyncio.run(_annotate(data, settings))


async def _annotate(data: bytes, settings: AnnotatePgnSettings) -> int:
    path = find_engine(settings.engine_path, setting="--engine-path")
    pool = EnginePool(path, engines=1, hash_mb=16, queue=8, deadline_s=_DEADLINE_S)
    count = 0
    try:
        await pool.start()
        for game in read_games(data):
            if not game.moves:
                continue
            count += 1
            for fault in game.faults:
                sys.stderr.write(printable(f"game {count}: not all of it was read: {fault}\n"))
            rng = random.Random(f"{settings.seed}:{count}")
            # On stderr, and gone before the game is written, which may go to the same terminal.
            with Progress(
                console=SafeConsole(stderr=True), transient=True, redirect_stdout=False
            ) as progress:
                bar = progress.add_task(f"game {count}, moves", total=len(game.moves))
                annotated = await _game(game, pool, settings, rng, partial(progress.advance, bar))
            sys.stdout.write(f"{annotated}\n\n")
    finally:
        await pool.close()
    if not count:
        raise InvalidInput(f"{str(settings.pgn)!r} has no game with moves")
    return 0


async def _game(
    game: PgnGame,
    pool: EnginePool,
    settings: AnnotatePgnSettings,
    rng: random.Random,
    on_move: Callable[[], None],
) -> chess.pgn.Game:
    """The game with marks, comments and side lines. `on_move` is called after each move."""
    board = game.board.root()
    annotated = chess.pgn.Game.without_tag_roster()
    annotated.setup(board)
    annotated.headers.update(
        {name: value for name, value in game.tags.items() if name not in ("FEN", "SetUp")}
    )
    if annotated.headers.get("Result", "*") not in SCORES:
        annotated.headers["Result"] = "*"
    annotated.headers["Annotator"] = f"Rookery ({settings.voice})"
    node: chess.pgn.GameNode = annotated
    for move in game.moves:
        fen = board.fen()
        best = (await pool.search(Query(fen, settings.nodes))).lines[0]
        played = best
        if best.pv[0] != move.uci():
            played = (await pool.search(Query(fen, settings.nodes, move=move.uci()))).lines[0]
        before, node = node, node.add_variation(move)
        _comment(node, before, (best, played), settings=settings, rng=rng)
        board.push(move)
        on_move()
    return annotated


def _comment(
    node: chess.pgn.GameNode,
    before: chess.pgn.GameNode,
    lines: tuple[Line, Line],
    *,
    settings: AnnotatePgnSettings,
    rng: random.Random,
) -> None:
    """Marks a move and says why, or what speaks for it."""
    (best, played), board = lines, before.board()
    regret = _score(best).win - _score(played).win
    words = []
    if mark := next((mark for mark in _MARKS if regret >= mark[0]), None):
        node.nags.add(mark[1])
        moves = list(_to_quiet(board, best.pv))
        words.append(f"{mark[2]}: {board.san(moves[0])} is better.")
        before.add_line(moves)
    if node.move is not None:
        words += _weightiest_sentence(board, node.move, settings.voice, rng)
    node.comment = " ".join(words)
    if settings.evals and not node.board().is_game_over():
        score = _score(played)
        mover: chess.engine.Score = chess.engine.Cp(score.cp or 0)
        if score.mate is not None:  # counted with the move, which has been played
            mover = chess.engine.Mate(score.mate - (score.mate > 0))
        node.set_eval(chess.engine.PovScore(mover, board.turn))


def _score(line: Line) -> Score:
    return Score(line.evaluation.cp, line.evaluation.mate)


def _weightiest_sentence(board: chess.Board, move: chess.Move, voice: str, rng: random.Random) -> list[str]:
    """The weightiest sentence about a move that is read and true, if there is one."""
    last = board.peek().uci() if board.move_stack else None
    study = Study(board.fen(), last=last)
    for statement in move_statements(board, move, rng, voice=voice):
        if statement.finding.weight < _WEIGHTY:
            break
        for words in rng.sample(statement.sentences, len(statement.sentences)):
            sentence = words[0].upper() + words[1:]
            if read(study, sentence, about=move).sound:
                return [sentence]
    return []


def _to_quiet(board: chess.Board, ucis: tuple[str, ...]) -> Iterator[chess.Move]:
    """The moves of a line up to a quiet point: the next one takes nothing and gives no check, and no check
    stands."""
    board = board.copy(stack=False)
    for ply, uci in enumerate(ucis[:_LONGEST_LINE]):
        move = chess.Move.from_uci(uci)
        forcing = board.is_capture(move) or board.gives_check(move) or board.is_check()
        if ply >= 3 and not forcing:
            break
        yield move
        board.push(move)
