"""The UCI protocol around a player.

Reads commands as lines and writes answers as lines; `session` connects both to this process's pipes. No
command waits for the player: opening it and searching are separate tasks.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import chess
import chess.engine

from arena.players.player import Player
from arena.uci.commands import DECLARATIONS, Options, UciSearch, parse_go, parse_option, parse_position
from rookery import __version__
from rookery.engines.player import Reply
from rookery.errors import InvalidInput, RookeryError

logger = logging.getLogger(__name__)

T = TypeVar("T")

READY_S = 10.0
"""`readyok` comes after at most this time, even if the player is not open yet: runners wait for 15 s."""

END_S = 120.0
"""How long the end of the input waits for a search: a model may have to be loaded first."""

CLOSE_S = 2.0
"""How long `quit` waits for the player to end."""

RETRY_TEMPERATURE = 1.0
"""Temperature of further attempts if that of the first is 0: asked again, it would answer the same."""

NO_MOVE = "bestmove (none)"
"""The answer where no move is legal, or the position is refused. Stockfish writes it too."""

_MAX_TEXT = 2000
_SPECIAL_TOKEN = re.compile(r"<\|[^|<>]*\|>")


class UciEngine:
    """Answers UCI commands with the moves of the player that `open_player` returns.

    The player is opened by the first `isready` or `go`. Every search ends with a legal move. It is drawn at
    random if the player has named none when its time is up, when it is stopped, or after a fault.
    """

    def __init__(
        self,
        name: str,
        open_player: Callable[[], Awaitable[Player]],
        write: Callable[[str], None],
        *,
        seed: int,
    ) -> None:
        self._name, self._open_player, self._write = name, open_player, write
        self._seed, self._searches = seed, 0
        self._options = Options()
        self._board: chess.Board | None = chess.Board()
        self._opening: asyncio.Task[Player] | None = None
        self._search: UciSearch | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def run(self, next_line: Callable[[], Awaitable[str | None]]) -> None:
        """Handles lines until `quit`, or until None, the end of the input.

        After `quit`, nothing more is written. At the end of the input, all searches are answered first.
        Raises `RookeryError` if the player could not be opened for an `isready`.
        """
        try:
            while not self._failure.done():
                reading = asyncio.ensure_future(next_line())
                both: set[asyncio.Future[Any]] = {reading, self._failure}
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                elif (line := reading.result()) is None:
                    await self._finish()
                    break
                elif not await self.handle(line):
                    return
            if self._failure.done():
                raise self._failure.result()
        finally:
            self._write = lambda line: None
            await self._close()

    async def handle(self, line: str) -> bool:
        """Handles one command. Returns whether to go on."""
        words = line.split()
        while words and words[0] not in _COMMANDS:  # "joho debug on" means "debug on"
            words.pop(0)
        if not words:
            return True
        command, *rest = words
        if command == "quit":
            return False
        await _COMMANDS[command](self, rest)
        return True

    async def _uci(self, words: Sequence[str]) -> None:
        self._write(f"id name Rookery {__version__} {self._name}")
        self._write("id author the Rookery developers")
        for declaration in DECLARATIONS:
            self._write(declaration)
        self._write("uciok")

    async def _is_ready(self, words: Sequence[str]) -> None:
        if self._search:
            self._write("readyok")
        else:
            self._start(self._ready())

    async def _ready(self) -> None:
        opening = self._opened()
        await asyncio.wait({opening}, timeout=READY_S)
        if not opening.done():
            self._say("the player is still starting: moves are random until it is ready")
        elif (error := opening.exception()) is not None:
            self._say(f"error: {error}")
            if not self._failure.done():
                self._failure.set_result(error)
            return
        self._write("readyok")

    def _opened(self) -> "asyncio.Task[Player]":
        """The task that opens the player; a new one after a failure."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.ensure_future(self._open_player())
        return self._opening

    async def _set_option(self, words: Sequence[str]) -> None:
        try:
            self._options = self._options.set(*parse_option(words))
        except InvalidInput as error:
            self._say(str(error))

    async def _new_game(self, words: Sequence[str]) -> None:
        await self._stop(words)
        self._board = chess.Board()

    async def _position(self, words: Sequence[str]) -> None:
        self._board = None
        try:
            self._board = parse_position(words)
        except InvalidInput as error:
            self._say(f"error: {error}")

    async def _go(self, words: Sequence[str]) -> None:
        await self._stop(words)
        board, go = self._board, parse_go(words)
        if board is None:
            self._say("error: there is no legal position to search")
            self._write(NO_MOVE)
            return
        self._searches += 1
        seed = random.Random(f"{self._seed}:{self._searches}").getrandbits(30)
        self._search = UciSearch(board.copy(), go, seed=seed)
        self._start(self._find_move(self._search))

    async def _finish(self) -> None:
        """Waits for the answers. A search that only `stop` or `ponderhit` would end is stopped at once."""
        if (search := self._search) and search.waits_for_gui:
            search.stopped.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_S)
        await self._stop([])

    async def _stop(self, words: Sequence[str]) -> None:
        if search := self._search:
            search.stopped.set()
            await search.ended.wait()

    async def _ponder_hit(self, words: Sequence[str]) -> None:
        if self._search:
            self._search.ponder_hit.set()

    async def _ignore(self, words: Sequence[str]) -> None:
        """Accepts what changes nothing, such as `debug` and `register`."""

    def _start(self, work: Awaitable[T]) -> "asyncio.Future[T]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _find_move(self, search: UciSearch) -> None:
        """Writes one `bestmove`, when the search may end and not before."""
        answer = self._start(self._ask(search))
        try:
            await search.wait(answer, overhead_ms=self._options.overhead_ms)
            move = answer.result() if answer.done() else None
            if not answer.done():
                why = "stopped" if search.stopped.is_set() else "out of time"
                self._say(f"{why} before the player answered: the move is random, the score unknown")
        finally:
            answer.cancel()
            self._search = None
            search.ended.set()
        if not search.scored:
            self._info(search, chess.engine.Mate(0) if search.board.is_checkmate() else chess.engine.Cp(0))
        if move is None and search.legal:
            move = random.Random(search.seed).choice(search.legal)
        self._write(f"bestmove {move.uci()}" if move else NO_MOVE)

    async def _ask(self, search: UciSearch) -> chess.Move | None:
        """The player's move, or None if it names none of those allowed. A fault is written, not raised."""
        if not search.legal:
            return None
        try:
            player = await asyncio.shield(self._opened())
            for attempt in range(1 + self._options.retries):
                reply = await self._tuned(player, attempt).play(search.board, seed=search.seed + attempt)
                if self._report(search, reply):
                    return reply.move
        except RookeryError as error:
            self._say(f"error: {error}: the move is random")
        except Exception as error:  # a bug must not lose the game by silence
            logger.exception("search of %s", search.board.fen())
            self._say(f"error: {error!r}: the move is random")
        return None

    def _tuned(self, player: Player, attempt: int) -> Player:
        from arena.players.model import ModelPlayer

        if not isinstance(player, ModelPlayer):
            return player
        chosen = self._options.temperature
        temperature = player.sampling.temperature if chosen is None else chosen
        return player.at(RETRY_TEMPERATURE if attempt and not temperature else temperature)

    def _report(self, search: UciSearch, reply: Reply) -> bool:
        """Writes what the player said. Returns whether its move may be played."""
        if text := one_line(reply.text):
            self._say(text)
        if reply.move in search.legal:
            if reply.score is None:
                self._say("the player gives no evaluation: the score is always 0")
            score = reply.score.relative if reply.score else chess.engine.Cp(0)
            self._info(search, score, reply)
            return True
        problem = (
            f"{reply.move} is not among searchmoves" if reply.move else f"no legal move: {reply.outcome}"
        )
        self._say(problem)
        return False

    def _info(self, search: UciSearch, score: chess.engine.Score, reply: Reply | None = None) -> None:
        mate = score.mate()
        score_text = f"cp {score.score()}" if mate is None else f"mate {mate}"
        pv = f" pv {reply.move.uci()}" if reply and reply.move else ""
        nodes = reply.tokens if reply else 0
        milliseconds = round(1000 * (time.monotonic() - search.started))
        self._write(f"info depth 1 score {score_text} nodes {nodes} time {milliseconds}{pv}")
        search.scored = True

    def _say(self, text: str) -> None:
        self._write(f"info string {one_line(text)}")

    async def _close(self) -> None:
        opening = self._opening
        tasks = {*self._tasks, *([opening] if opening else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if opening and opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().close()


def one_line(text: str) -> str:
    """`text` without line breaks, control characters and special tokens, at most `_MAX_TEXT` characters.

    >>> one_line("<think>I like\\n  e4.</think><|im_end|>")
    '<think>I like e4.</think>'
    """
    plain = "".join(c if c.isprintable() else " " for c in _SPECIAL_TOKEN.sub(" ", text))
    line = " ".join(plain.split())
    return line if len(line) <= _MAX_TEXT else f"{line[: _MAX_TEXT - 3]}..."


_COMMANDS: dict[str, Callable[[UciEngine, Sequence[str]], Awaitable[None]]] = {
    "uci": UciEngine._uci,
    "isready": UciEngine._is_ready,
    "setoption": UciEngine._set_option,
    "ucinewgame": UciEngine._new_game,
    "position": UciEngine._position,
    "go": UciEngine._go,
    "stop": UciEngine._stop,
    "ponderhit": UciEngine._ponder_hit,
    "debug": UciEngine._ignore,
    "register": UciEngine._ignore,
    "quit": UciEngine._ignore,
}
