"""What is said to a UCI engine and what it answers: questions, analyses, and the text between them.

Questions are searches limited by nodes on a cleared hash, which give the same bits whatever was
searched before. Running the engine is for `rookery.engines`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rookery.errors import EngineFault
from rookery.trace import Evaluation

_INFO = re.compile(
    rb"info depth (\d+) .*?multipv (\d+) score (cp|mate) (-?\d+)(?: wdl (\d+) (\d+) (\d+))?( \w+bound)?"
    rb" nodes (\d+) .*? pv ([\w ]+)"
)


@dataclass(frozen=True, slots=True)
class Query:
    """A position to search, all of it or only `move`, for a number of nodes.

    `lines` best moves are wanted (MultiPV); with `chess960` castling is the king taking its rook.
    """

    fen: str
    nodes: int
    move: str | None = None
    lines: int = 1
    chess960: bool = False

    @property
    def go(self) -> str:
        """The commands that ask it, once the options are set."""
        only = f" searchmoves {self.move}" if self.move else ""
        return f"position fen {self.fen}\ngo nodes {self.nodes}{only}\n"

    @property
    def options(self) -> str:
        """The commands that set what `lines` and `chess960` want."""
        chess960 = str(self.chess960).lower()
        return f"setoption name MultiPV value {self.lines}\nsetoption name UCI_Chess960 value {chess960}\n"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of play in UCI and its score for the side to move.

    `wdl` is the engine's own estimate of wins, draws and losses per mille, where it gives one.
    """

    evaluation: Evaluation
    pv: tuple[str, ...]
    wdl: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the last finished iteration found, best line first. `nodes` is what the whole search took."""

    lines: tuple[Line, ...]
    nodes: int

    @property
    def best(self) -> str:
        """The best move in UCI."""
        return self.lines[0].pv[0]

    @property
    def evaluation(self) -> Evaluation:
        """The score of the best move, for the side to move."""
        return self.lines[0].evaluation


def analysis_of(output: bytes, query: Query) -> Analysis:
    """The lines of the last finished iteration.

    A search that runs out of nodes ends on lines with a bound instead of a score, or of two depths: the
    last block without counts, and its own moves, because `bestmove` may already be another one without
    a score. A handful of nodes may not finish even the first iteration; then that block is all there is.
    """
    nodes = 0
    block: list[re.Match[bytes]] = []
    last: list[re.Match[bytes]] = []
    for row in reversed(output.split(b"\n")):
        if (match := _INFO.match(row)) is None:
            continue
        nodes = nodes or int(match[9])
        block.append(match)
        if match[2] == b"1":
            last = last or block
            if not any(row[8] or row[1] != match[1] for row in block):
                break
            block = []
    block = block or last
    if not block:
        raise EngineFault(f"no score from the engine for {query}: {output[-200:]!r}")
    return Analysis(tuple(_line(row) for row in reversed(block)), nodes)


def _line(row: re.Match[bytes]) -> Line:
    unit, value, win, draw, loss = row.group(3, 4, 5, 6, 7)
    evaluation = Evaluation(cp=int(value)) if unit == b"cp" else Evaluation(mate=int(value))
    wdl = None if win is None else (int(win), int(draw), int(loss))
    return Line(evaluation, tuple(row[10].decode().split()), wdl)
