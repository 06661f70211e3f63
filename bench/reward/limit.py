"""The physical limit: engines on raw pipes, given exactly the searches that the service makes.

Commands are written ahead, so no engine ever waits, and what it prints is not read but counted, in
big pieces, fifty times a second: this process costs the engines next to nothing. Nothing is
parsed, scheduled, cached or answered, so no service can be faster with the same engines.

Beside it the obvious way: python-chess drives an engine per thread, and every answer is analysed for itself.
Two analyses an answer, the position and the move, with the same nodes and a cleared hash: what one
writes without knowing that a group shares its position. Reading the answer is left out, which only
favours it.
"""

import fcntl
import os
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import chess
import chess.engine

from bench.reward.workload import Question
from services.reward.position import read_position

HASH_MB = 1
NAP_S = 0.02
LAST_NAP_S = 0.002
"""When nothing is left to write: the clock should stop with the last engine."""

AHEAD_NODES = 100_000
"""Written ahead to each engine: some 0.1 s of work, many naps."""

MAX_AHEAD = 256
PIPE_BYTES = 1 << 20
"""Holds what an engine prints about `MAX_AHEAD` searches, or it would stop to wait for the reader."""

_DONE = b"\nbestmove "


def searches(questions: Sequence[Question], best: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """(FEN, move or None) of every search: each position once, and each further move that is not over. `best`
    is the engine's choice by FEN, in UCI: an answer that repeats it needs no search of its own."""
    found: list[tuple[str, str | None]] = []
    for question in questions:
        moves = dict.fromkeys(answer.move for answer in question.answers if answer.move)
        if not moves:
            continue
        position = read_position(question.fen)
        found.append((position.key, None))
        others = [chess.Move.from_uci(move) for move in moves if move != best[question.fen]]
        found += [
            (position.key, position.to_engine(m))
            for m in others
            if position.legal_move(m).final_score is None
        ]
    return found


class Pipes(AbstractContextManager["Pipes"]):
    """`engines` of them, with one thread and `HASH_MB` of hash each, and nothing before them."""

    def __init__(self, path: Path, engines: int) -> None:
        self._exits = ExitStack()
        self._engines = [self._exits.enter_context(_Pipe(path)) for _ in range(engines)]

    def __exit__(self, *raised: object) -> None:
        self._exits.close()

    @property
    def pids(self) -> list[int]:
        return [engine.pid for engine in self._engines]

    def run(self, wanted: Sequence[tuple[str, str | None]], *, nodes: int) -> None:
        """Returns when every search is done."""
        todo = deque(_command(fen, move, nodes) for fen, move in wanted)
        ahead = min(MAX_AHEAD, max(2, AHEAD_NODES // nodes))
        while True:
            for engine in self._engines:
                engine.count()
                engine.write([todo.popleft() for _ in range(min(len(todo), ahead - engine.pending))])
            if not todo and not any(engine.pending for engine in self._engines):
                return
            time.sleep(NAP_S if todo else LAST_NAP_S)


class _Pipe(AbstractContextManager["_Pipe"]):
    """One engine process."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin and self._process.stdout  # noqa: S101 -- opened above
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.pending = 0
        self._rest = b""
        self._stdin.write(
            f"uci\nsetoption name Threads value 1\nsetoption name Hash value {HASH_MB}\n".encode()
        )
        self._stdin.write(b"isready\n")
        while b"readyok" not in self._stdout.readline():
            pass
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux only; elsewhere write less ahead
            fcntl.fcntl(self._stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._stdout.fileno(), False)

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.communicate()

    def write(self, commands: Sequence[bytes]) -> None:
        if commands:
            self.pending += len(commands)
            self._stdin.write(b"".join(commands))

    def count(self) -> None:
        output = self._stdout.read(PIPE_BYTES)
        if output == b"":
            raise RuntimeError(f"the engine of process {self.pid} died")
        if output:
            text = self._rest + output
            self.pending -= text.count(_DONE)
            self._rest = text[-len(_DONE) + 1 :]


def _command(fen: str, move: str | None, nodes: int) -> bytes:
    only = f" searchmoves {move}" if move else ""
    return f"ucinewgame\nposition fen {fen}\ngo nodes {nodes}{only}\n".encode()


class SimpleEngines(AbstractContextManager["SimpleEngines"]):
    """`count` engines of python-chess, each with a thread."""

    def __init__(self, path: Path, engines: int, *, nodes: int) -> None:
        self._limit = chess.engine.Limit(nodes=nodes)
        self._exits = ExitStack()
        self._games = count()
        self._idle: SimpleQueue[chess.engine.SimpleEngine] = SimpleQueue()
        self.pids: list[int] = []
        for _ in range(engines):
            engine = chess.engine.SimpleEngine.popen_uci(str(path))
            self._exits.callback(engine.quit)
            engine.configure({"Threads": 1, "Hash": HASH_MB})
            self.pids.append(engine.transport.get_pid())
            self._idle.put(engine)
        self._threads = self._exits.enter_context(ThreadPoolExecutor(engines))

    def __exit__(self, *raised: object) -> None:
        self._exits.close()

    def run(self, questions: Sequence[Question]) -> None:
        """Returns when every answer is judged."""
        asked = [(question.fen, answer.move) for question in questions for answer in question.answers]
        for _ in self._threads.map(self._judge, asked):
            pass

    def _judge(self, asked: tuple[str, str | None]) -> float | None:
        fen, move = asked
        if move is None:
            return None
        board = chess.Board(fen)
        engine = self._idle.get()
        try:
            # A new `game` makes python-chess send `ucinewgame`, which clears the hash.
            before = engine.analyse(board, self._limit, game=next(self._games))
            after = engine.analyse(
                board, self._limit, root_moves=[chess.Move.from_uci(move)], game=next(self._games)
            )
        finally:
            self._idle.put(engine)
        return _win(after, board.turn) - _win(before, board.turn)


def _win(info: chess.engine.InfoDict, turn: chess.Color) -> float:
    return info["score"].pov(turn).wdl(model="lichess").expectation()
