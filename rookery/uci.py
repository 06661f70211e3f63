"""The UCI protocol as text: queries to an engine, and the analyses parsed from its output.

A query is limited by nodes and runs on a cleared hash, so its result does not depend on earlier
searches. `rookery.engines` runs the engine.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rookery.errors import EngineFault
from rookery.trace import Evaluation

_INFO = re.compile(
    rb"info depth (\d+) (?>.*?multipv )(\d+) score (cp|mate) (-?\d+)(?: wdl (\d+) (\d+) (\d+))?( \w+bound)?"
    rb" nodes (\d+) .*? pv ([\w ]+)"
)


class Query(NamedTuple):
    """A search of `nodes` nodes from `fen`, restricted to `move` if it is given. `lines` is MultiPV. With
    `chess960`, castling is written as the king capturing its rook."""

    fen: str
    nodes: int
    move: str | None = None
    lines: int = 1
    chess960: bool = False

    @property
    def go(self) -> str:
        only = f" searchmoves {self.move}" if self.move else ""
        return f"position fen {self.fen}\ngo nodes {self.nodes}{only}\n"

    @property
    def options(self) -> str:
        """The UCI commands that set the options for `lines` and `chess960`."""
        chess960 = str(self.chess960).lower()
        return f"setoption name MultiPV value {self.lines}\nsetoption name UCI_Chess960 value {chess960}\n"


class Line(NamedTuple):
    """A line of play in UCI and its score for the side to move. `wdl` is the engine's estimate of wins, draws
    and losses per mille, if it reports one."""

    evaluation: Evaluation
    pv: tuple[str, ...]
    wdl: tuple[int, int, int] | None = None


class Analysis(NamedTuple):
    """The lines of the last finished iteration, best first. `nodes` counts the whole search."""

    lines: tuple[Line, ...]
    nodes: int

    @property
    def best(self) -> str:
        return self.lines[0].pv[0]

    @property
    def evaluation(self) -> Evaluation:
        return self.lines[0].evaluation


def analysis_of(output: bytes, query: Query) -> Analysis:
    """Parses the lines of the last finished iteration.

    A search that runs out of nodes may end on lines that carry a bound instead of a score, or on lines of two
    depths. Those are skipped, and `bestmove` is not used, because it may name a move without a score. If not
    even the first iteration finished, its incomplete lines are returned. Raises `EngineFault` if the output
    holds no score.
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
