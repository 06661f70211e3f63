"""`python -m bench.annotations`: counts false claims in first drafts of annotations.

Returns 1 if there is one. Goes on where it was stopped.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from bench.annotations.audit import Audit
from chess_datasets.annotate.compose import ANY, Manner
from chess_datasets.annotate.study import Effort, decidable
from chess_datasets.jobs import Progress
from commentary import LENGTHS, VOICES
from rookery.config.data import SAMPLE
from rookery.encoding import decode
from rookery.engines import EnginePool, find_engine
from rookery.epd import epd_lines, read_epd
from rookery.errors import InvalidInput, RookeryError
from rookery.fen import FenReport
from rookery.processes.workers import process_pool
from rookery.trace import Phase, Position

_DEADLINE_S = 60.0
_AHEAD = 8
"""Positions in work for each engine: while one waits for its first search, the engine searches another."""


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return asyncio.run(_check(options))
    except RookeryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


async def _check(options: argparse.Namespace) -> int:
    async with _pool(options) as pool:
        # Processes that write and check. Without any, this process does it between the searches.
        writer_pool = process_pool(options.jobs) if options.jobs else contextlib.nullcontext()
        with writer_pool as writers, Progress() as progress:
            progress.begin("check", unit="positions", total=options.count)
            manner = Manner(options.voice, options.length, options.box, options.seed)
            effort = Effort.of(options.nodes, lines=options.lines)
            audit = Audit(Path(options.out), pool, manner, effort, writers=writers)
            positions = (
                (position.fen, next(reversed(position.last_moves), None)) for position in _positions(options)
            )
            ahead = _AHEAD * options.engines
            tally = await audit.run(positions, ahead=ahead, advance=progress.advance)
    summary = json.dumps(tally.summary(), indent=2)
    (audit.folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    sys.stdout.write(summary + "\n")
    return 0 if tally.false == 0 and tally.unread == 0 else 1


@asynccontextmanager
async def _pool(options: argparse.Namespace) -> AsyncIterator[EnginePool]:
    path = find_engine(options.engine_path, setting="--engine-path")
    pool = EnginePool(
        path, engines=options.engines, hash_mb=16, queue=64 * options.engines, deadline_s=_DEADLINE_S
    )
    try:
        yield await pool.start()
    finally:
        await pool.close()


def _positions(options: argparse.Namespace) -> Iterator[Position]:
    """Distinct positions from games, or those of a file with a FEN on each line."""
    if options.fens:
        report = FenReport()
        lines = list(islice(epd_lines(decode(Path(options.fens).read_bytes())), options.count))
        for number, line in lines:
            try:
                fen = decidable(read_epd(line, dropped=report.dropped).board.fen()).fen()
            except InvalidInput as error:
                report.skip(f"line {number}", error)
            else:
                yield Position(id=f"fen:{number}", fen=fen, ply=0, phase=Phase.MIDDLEGAME, game_id="")
        sys.stderr.writelines(f"{line}\n" for line in report.lines(options.fens))
        if report.skipped_count == len(lines):
            raise InvalidInput(f"{options.fens!r} has no position that can be used")
        return
    from chess_datasets.pgn.collection import GameCollection
    from chess_datasets.pgn.sources import find_sources
    from chess_datasets.positions.numbered import PositionOrder
    from chess_datasets.positions.recipe import Shares

    with contextlib.closing(GameCollection(find_sources(options.source))) as games:
        order = PositionOrder(games, shares=Shares(), split="train")
        yield from islice(order.distinct(seed=options.seed), options.count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.annotations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--count", type=int, required=True, help="positions")
    parser.add_argument("--source", nargs="+", default=[SAMPLE], metavar="PGN")
    parser.add_argument("--fens", metavar="FILE", help="positions instead of games: a FEN on each line")
    jobs = max(1, (os.cpu_count() or 2) // 4)
    help_ = "processes that write and check"
    parser.add_argument("--jobs", type=int, choices=range(65), metavar="N", default=jobs, help=help_)
    parser.add_argument("--voice", choices=(*VOICES, ANY), default=ANY)
    parser.add_argument("--length", default=ANY, help=f"{', '.join(LENGTHS)}, {ANY}, or tokens ({ANY})")
    parser.add_argument("--box", choices=("san", "uci"), default="san")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=100_000, help="of the search for the best move")
    parser.add_argument("--lines", type=int, default=3, help="best moves looked at")
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--engine-path", type=Path, default=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
