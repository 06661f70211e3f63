"""The obvious way: python-chess drives an engine per thread, and every answer is analysed for itself.

Two analyses an answer, the position and the move, with the same nodes and a cleared hash: what one
writes without knowing that a group shares its position. Reading the answer is left out, which only
favours it.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import chess
import chess.engine

from bench.reward.workload import Question


class SimpleEngines:
    """`count` engines of python-chess, each with a thread."""

    def __init__(self, path: Path, engines: int, *, nodes: int, hash_mb: int = 1) -> None:
        self._limit = chess.engine.Limit(nodes=nodes)
        self._exits = ExitStack()
        self._games = count()
        self._idle: SimpleQueue[chess.engine.SimpleEngine] = SimpleQueue()
        self.pids: list[int] = []
        for _ in range(engines):
            engine = chess.engine.SimpleEngine.popen_uci(str(path))
            self._exits.callback(engine.quit)
            engine.configure({"Threads": 1, "Hash": hash_mb})
            self.pids.append(engine.transport.get_pid())
            self._idle.put(engine)
        self._threads = self._exits.enter_context(ThreadPoolExecutor(engines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
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
