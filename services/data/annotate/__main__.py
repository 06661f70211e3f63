"""`python -m services.data.annotate`: show one annotation, or check what is written."""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from itertools import islice
from pathlib import Path

from commentary import LENGTHS, VOICES
from rookery.engines import EnginePool, find_engine
from rookery.errors import RookeryError
from rookery.processes.workers import process_pool
from rookery.prompt import STYLES
from rookery.trace import Phase, Position
from services.data.annotate.annotator import AHEAD, Annotator
from services.data.annotate.audit import Audit
from services.data.annotate.compose import ANY, Manner
from services.data.annotate.diversity import diversity
from services.data.annotate.study import Effort
from services.data.jobs import Progress
from services.data.pgn.sources import SAMPLE

_DEADLINE_S = 60.0
_EXAMPLES = """examples:
  python -m services.data.annotate show --fen "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
  python -m services.data.annotate check --count 10000 --out runs/annotations-check
"""


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    commands = {"show": _show, "check": _check}
    try:
        return asyncio.run(commands[options.command](options))
    except RookeryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


async def _show(options: argparse.Namespace) -> int:
    position = Position(id="shown", fen=options.fen, ply=0, phase=Phase.MIDDLEGAME, game_id="")
    async with _pool(options) as pool:
        annotation = await Annotator(pool, options.style, _manner(options), _effort(options)).annotate(
            position
        )
    if annotation is None:
        sys.stderr.write("no text about this position passes the check\n")
        return 1
    sys.stdout.write(f"{annotation.answer}\n")
    sys.stderr.write(f"\n{annotation.claims} claims, all true ({annotation.voice}, {annotation.length})\n")
    return 0


def _report_smell(texts: list[str]) -> None:
    for masked in (False, True):
        found = diversity(texts, masked=masked)
        words = "masked" if masked else "as written"
        sys.stderr.write(f"{words}: distinct {found.distinct}, new openings {found.openings:.0%}\n")
        for gram, share in found.commonest[:5]:
            sys.stderr.write(f"  {share:.3%}  {gram}\n")


async def _check(options: argparse.Namespace) -> int:
    async with _pool(options) as pool:
        with _writers(options) as writers, Progress() as progress:
            progress.begin("check", unit="positions", total=options.count)
            audit = Audit(Path(options.out), pool, _manner(options), _effort(options), writers=writers)
            fens = (position.fen for position in _positions(options))
            ahead = AHEAD * options.engines
            tally = await audit.run(fens, ahead=ahead, advance=progress.advance)
    summary = json.dumps(tally.summary(), indent=2)
    (audit.folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    sys.stdout.write(summary + "\n")
    _report_smell(audit.texts())
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


def _writers(options: argparse.Namespace) -> AbstractContextManager[ProcessPoolExecutor | None]:
    """Processes that write and check; with none it is done between the searches."""
    return process_pool(options.jobs) if options.jobs else contextlib.nullcontext()


def _positions(options: argparse.Namespace) -> Iterator[Position]:
    """Distinct positions from games, or those of a file with a FEN on each line."""
    if options.fens:
        rows = Path(options.fens).read_text(encoding="utf-8").splitlines()
        for number, fen in enumerate(row.strip() for row in rows[: options.count] if row.strip()):
            yield Position(id=f"fen:{number}", fen=fen, ply=0, phase=Phase.MIDDLEGAME, game_id="")
        return
    from services.data.pgn.collection import GameCollection
    from services.data.pgn.sources import find_sources
    from services.data.positions.numbered import PositionOrder
    from services.data.positions.recipe import Shares

    with contextlib.closing(GameCollection(find_sources(options.source))) as games:
        order = PositionOrder(games, shares=Shares(), split="train")
        yield from islice(order.distinct(seed=options.seed), options.count)


def _manner(options: argparse.Namespace) -> Manner:
    return Manner(options.voice, options.length, options.box, options.seed)


def _effort(options: argparse.Namespace) -> Effort:
    return Effort.of(options.nodes, lines=options.lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.data.annotate",
        description="Analyses in the voice of a strong player, every claim checked on the board.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="annotate one position")
    show.add_argument("--fen", required=True)
    check = commands.add_parser("check", help="count false claims in first drafts; goes on where it stopped")
    check.add_argument("--out", required=True, metavar="FOLDER")
    check.add_argument("--count", type=int, required=True, help="positions")
    check.add_argument("--source", nargs="+", default=[SAMPLE], metavar="PGN")
    check.add_argument("--fens", metavar="FILE", help="positions instead of games: a FEN on each line")
    jobs = max(1, (os.cpu_count() or 2) // 4)
    help_ = "processes that write and check"
    check.add_argument("--jobs", type=int, choices=range(65), metavar="N", default=jobs, help=help_)
    for command in (show, check):
        _add_manner(command)
    return parser


def _add_manner(command: argparse.ArgumentParser) -> None:
    command.add_argument("--voice", choices=(*VOICES, ANY), default=ANY)
    command.add_argument("--length", default=ANY, help=f"{', '.join(LENGTHS)}, {ANY}, or tokens ({ANY})")
    command.add_argument("--box", choices=("san", "uci"), default="san")
    command.add_argument("--style", choices=sorted(STYLES), default="fen", help="of the prompt")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--nodes", type=int, default=100_000, help="of the search for the best move")
    command.add_argument("--lines", type=int, default=3, help="best moves looked at")
    command.add_argument("--engines", type=int, default=1)
    command.add_argument("--engine-path", type=Path, default=None)


if __name__ == "__main__":
    sys.exit(main())
