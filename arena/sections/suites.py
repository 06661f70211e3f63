"""Test suites in EPD: positions with the best moves (`bm`), or with moves to avoid (`am`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess

from arena.asking import Asker
from arena.players.player import Player
from arena.stats import Ratio
from arena.tables import Metric, Section, Table, compared
from rookery.encoding import decode
from rookery.epd import epd_lines, read_epd
from rookery.errors import InvalidInput
from rookery.fen import FenReport

_NOTE = "A position counts if the move is one of the best moves (bm), or none of those to avoid (am)."


@dataclass(frozen=True, slots=True)
class Problem:
    """A position of a suite. Moves are UCI. Without `best` any move outside `avoid` is right."""

    id: str
    fen: str
    best: frozenset[str]
    avoid: frozenset[str]

    def is_right(self, uci: str) -> bool:
        return uci not in self.avoid and (not self.best or uci in self.best)


@dataclass(frozen=True, slots=True)
class Suite:
    """The problems of an EPD file. `report` names the lines that are not problems."""

    name: str
    problems: Sequence[Problem]
    seed: int = 0
    report: FenReport = field(default_factory=FenReport)

    @classmethod
    def read(cls, path: Path, *, seed: int) -> "Suite":
        """Reads a file with one EPD per line. Empty lines and comments (`#`) do not matter. Raises
        `InvalidInput` if the file cannot be read, or no line has a problem."""
        try:
            text = decode(path.read_bytes())
        except OSError as error:
            raise InvalidInput(f"suite {str(path)!r}: {error}") from error
        problems, report = [], FenReport()
        for number, line in epd_lines(text):
            try:
                epd = read_epd(line, dropped=report.dropped)
                if not epd.best and not epd.avoid:
                    raise InvalidInput(f"neither bm nor am: {line[:120]!r}")
                if not any(epd.board.legal_moves):
                    raise InvalidInput(f"no legal move: {line[:120]!r}")
            except InvalidInput as error:
                report.skip(f"{path.name}:{number}", error)
                continue
            best, avoid = frozenset(epd.best), frozenset(epd.avoid)
            problems.append(Problem(epd.id or f"{path.stem}:{number}", epd.board.fen(), best, avoid))
        if not problems:
            raise InvalidInput(f"no problems in {str(path)!r}: {report.reasons}")
        return cls(f"suites/{path.stem}", problems, seed, report)

    def names(self, player: Player) -> list[str]:
        return [problem.id for problem in self.problems]

    async def ask(self, asker: Asker, player: Player) -> list[str | None]:
        """The player's moves in UCI, in the order of the problems; None if an answer is not a legal move."""

        async def ask_problem(problem: Problem) -> str | None:
            async def play() -> dict[str, Any]:
                board = chess.Board(problem.fen)
                reply = await player.play(board, seed=asker.seed)
                move = reply.move.uci() if reply.move else None
                solved = move is not None and problem.is_right(move)
                return {"move": move, "text": reply.text, "tokens": reply.tokens, "fen": problem.fen,
                        "outcome": "solved" if solved else "failed"}  # fmt: skip

            question = {"problem": problem.fen, "seed": asker.seed}
            move = (await asker.recall(player, problem.id, question, play))["move"]
            return None if move is None else str(move)

        return await asker.each(ask_problem, self.problems)

    def section(self, moves: Mapping[str, Sequence[str | None]], *, players: Sequence[str]) -> Section:
        right = {
            name: Ratio.of(
                [move is not None and p.is_right(move) for p, move in zip(self.problems, side, strict=True)]
            )
            for name, side in moves.items()
        }
        legal = {name: Ratio.of([move is not None for move in side]) for name, side in moves.items()}
        ratios = [(Metric("solved", "Solved"), right), (Metric("legal", "Legal moves"), legal)]
        rows = compared(ratios, players=players, seed=self.seed)
        table = Table("metrics", f"{len(self.problems):,} positions", rows)
        title = f"Test suite: {self.name.partition('/')[2]}"
        return Section(self.name, title, _NOTE, [table], self.report.facts)
