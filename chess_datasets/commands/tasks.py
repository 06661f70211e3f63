"""`rookery data tasks`: writes questions with their answers. Can be stopped and continued."""

import argparse
import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

from chess_datasets.commands.engines import add_workers, made_parts
from chess_datasets.commands.flags import (
    above_zero,
    add_box,
    add_jsonl,
    add_number,
    add_positions,
    add_style,
    command_parser,
    file_name,
    natural,
    positive,
    recipe_of,
    report_exams,
    share,
)
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.store.files import identify
from chess_datasets.store.folders import open_folder
from chess_datasets.tasks.board import BOARD
from chess_datasets.tasks.dataset import ROOKWORLD, TaskRecipe, needs_engine, task_shard, write_tasks
from chess_datasets.tasks.engine_moves import CandidateTargets
from chess_datasets.tasks.example import ENGINE_MOVES, EXAMPLES, LEGAL_MOVES, NEXT_FEN, PUZZLE
from chess_datasets.tasks.puzzles import (
    PuzzleCounts,
    PuzzleFilter,
    puzzle_examples,
    read_puzzles,
    select_puzzles,
)
from chess_datasets.tasks.rookworld import RookworldMix
from rookery.errors import InvalidInput, SetupError
from rookery.formats import FORMATS
from rookery.masking import mask_setting, printable
from rookery.prompt import notation_of
from rookery.rookworld import LAYOUTS

EXAMPLES_SHOWN = """  rookery data tasks rookworld --count 10000 --out runs/rookworld --text lines.txt
  rookery data tasks board --count 10000 --source games/*.pgn.zst --out runs/board --jsonl board.jsonl
  rookery data tasks legal-moves --count 1000 --format ascii --out runs/legal --jsonl legal.jsonl
  rookery data tasks next-fen --count 1000 --source games/*.pgn.zst --out s3://bucket/next
  rookery data tasks engine-moves --count 1000 --nodes 1000 --style mover-squares --out runs/engine-moves
  rookery data tasks puzzle --puzzles lichess_db_puzzle.csv.zst --count 5000 --min-rating 1200 \\
      --themes fork pin --out runs/puzzles
"""


_NOT_FOR_PUZZLES = (
    "source", "positions", "split", "random_moves", "only", "nodes", "engines", "engine", "ray",
)  # fmt: skip


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    unused = [name for name in _NOT_FOR_PUZZLES if getattr(options, name) != parser.get_default(name)]
    if options.task == PUZZLE and unused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        parser.error(f"{flags}: no effect with the task puzzle, whose positions are those of --puzzles")
    if options.jsonl and options.jsonl == options.text:
        raise InvalidInput(f"--jsonl and --text have the same name: {options.text!r}")
    manifest = _puzzles(options) if options.task == PUZZLE else _from_positions(options)
    sys.stderr.write(f"{manifest['examples']} examples: {manifest['by_task']}\n")
    count = manifest["terms"].get("puzzles", {}).get("chosen", manifest["examples"])
    if count < options.count:
        sys.stderr.write(f"{options.count} were asked for; there are only {count}\n")
    return 0


def _from_positions(options: argparse.Namespace) -> dict[str, Any]:
    if options.best_share + options.uniform_share > 1:
        raise InvalidInput(
            f"--best-share {options.best_share} and --uniform-share {options.uniform_share}: "
            "together more than 1"
        )
    mix = RookworldMix(options.state_share, options.illegal_share, options.ending_share)
    targets = CandidateTargets(
        lines=options.lines,
        candidates=options.candidates,
        temperature=options.temperature,
        best=options.best_share,
        uniform=options.uniform_share,
        mate=options.mate_bonus,
        remarks=options.remarks,
    )
    box = options.box or (notation_of(options.style) if options.task == ENGINE_MOVES else "uci")
    recipe = recipe_of(TaskRecipe, options, mix=mix, targets=targets, box=box)
    with made_parts(
        options,
        EXAMPLES,
        partial(task_shard, recipe),
        stage=options.task,
        terms={"recipe": asdict(recipe)},
        has_engine=needs_engine(options.task),
    ) as (parts, terms):
        examples = chain.from_iterable(map(parts.read, sorted(parts.done)))
        return write_tasks(examples, parts.folder, terms=terms, jsonl=options.jsonl, text=options.text)


def _puzzles(options: argparse.Namespace) -> dict[str, Any]:
    if not options.puzzles:
        raise SetupError("the task puzzle needs --puzzles FILE")
    themes, without = frozenset(options.themes), frozenset(options.without)
    puzzle_filter = recipe_of(PuzzleFilter, options, themes=themes, without=without)
    counts = PuzzleCounts()
    excluded, exams = read_evaluation_files(options.exam)
    puzzles = read_puzzles(
        options.puzzles, wanted=puzzle_filter, excluded=excluded if exams else None, counts=counts
    )
    chosen = select_puzzles(
        puzzles,
        count=options.count,
        seed=options.seed,
        themes=options.themes if options.balance_themes else None,
    )
    by_theme = Counter(theme for puzzle in chosen for theme in puzzle.themes)
    source = identify(options.puzzles)
    terms = {
        "puzzles": {"size": source.size, "sha256": source.sha256, "rows": counts.rows, "chosen": len(chosen)},
        "wanted": {
            name: sorted(v) if isinstance(v, frozenset) else v for name, v in asdict(puzzle_filter).items()
        },
        "count": options.count,
        "seed": options.seed,
        "style": options.style,
        "box": options.box or "san",
        "balance_themes": options.balance_themes,
        "exams": [exam.summary for exam in exams],
        "in_exams": counts.in_exams,
        "skipped": dict(sorted(counts.skipped.items())),
        "dropped": dict(sorted(counts.dropped.items())),
        "by_theme": dict(by_theme.most_common()),
    }
    if exams:
        report_exams(counts.in_exams)
    name = mask_setting(options.puzzles)
    sys.stderr.writelines(f"{name}: {kind} dropped: {n}\n" for kind, n in sorted(counts.dropped.items()))
    sys.stderr.writelines(printable(f"  skipped {name} {line}\n") for line in counts.first)
    return write_tasks(
        puzzle_examples(chosen, style=options.style, box=options.box or "san"),
        open_folder(options.out),
        terms=terms,
        jsonl=options.jsonl,
        text=options.text,
    )


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "tasks",
        "Writes questions with their answers: RookWorld's P: and A: lines with correct labels, questions\n"
        "about the board, legal moves, the position after a move, candidate moves with soft targets from\n"
        "an engine, and puzzles from Lichess. A stopped command continues when it is called again with the\n"
        "same flags.",
        examples=EXAMPLES_SHOWN,
    )
    parser.add_argument("task", choices=(ROOKWORLD, BOARD, LEGAL_MOVES, NEXT_FEN, ENGINE_MOVES, PUZZLE))
    parser.add_argument(
        "--count", type=positive, required=True, help="number of examples; for puzzle, number of puzzles"
    )
    parser.add_argument("--out", required=True, help="folder or URL for tasks.parquet and manifest.json")
    add_jsonl(parser, "conversations")
    parser.add_argument(
        "--text", type=file_name, metavar="NAME", help="also write prompts and answers as plain lines to NAME"
    )
    add_positions(parser)
    parser.add_argument(
        "--format",
        dest="form",
        choices=tuple(FORMATS),
        default="fen",
        help="format of positions for board, legal-moves and next-fen (fen)",
    )
    add_style(parser, default="fen")
    add_box(parser, "engine-moves: that of the style, uci where it shows no moves; board: uci; puzzle: san")
    group = parser.add_argument_group("rookworld and engine-moves")
    add_number(group, "--nodes", positive, 20_000, "nodes per position")
    add_workers(group)
    group = parser.add_argument_group("rookworld")
    group.add_argument(
        "--layout", choices=tuple(LAYOUTS), default="published", help="columns of P: lines (published)"
    )
    add_number(group, "--state-share", share, 0.2, "share of A: lines")
    add_number(group, "--illegal-share", share, 0.05, "share of illegal moves in A: lines")
    add_number(group, "--ending-share", share, 0.5, "share of moves that end the game, where a move can")
    group = parser.add_argument_group("engine-moves")
    add_number(group, "--lines", positive, 8, "engine lines")
    add_number(group, "--candidates", positive, 3, "candidate moves in an answer")
    add_number(
        group, "--remarks", natural, 0, "most true sentences before them; one about the chosen move follows"
    )
    add_number(group, "--temperature", above_zero, 0.05, "temperature of the softmax over win probabilities")
    add_number(group, "--best-share", share, 0.3, "probability added to the engine's first move")
    add_number(group, "--uniform-share", share, 0.1, "probability spread over all legal moves")
    add_number(
        group,
        "--mate-bonus",
        share,
        0.2,
        "added to the win probability of a move that mates in n, divided by n",
    )
    _add_puzzles(parser)
    return parser


def _add_puzzles(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("puzzle")
    group.add_argument(
        "--puzzles", metavar="CSV", help="the puzzle database of Lichess, compressed or not, or its URL"
    )
    group.add_argument("--min-rating", type=natural, default=0)
    group.add_argument("--max-rating", type=natural, default=9999)
    group.add_argument("--max-deviation", type=natural, default=9999, help="the largest rating deviation")
    group.add_argument("--min-popularity", type=int, default=-100)
    group.add_argument("--min-plays", type=natural, default=0)
    group.add_argument(
        "--themes", nargs="+", default=(), help="take puzzles with at least one of these themes"
    )
    group.add_argument("--without", nargs="+", default=(), help="leave out puzzles with one of these themes")
    group.add_argument(
        "--balance-themes",
        action="store_true",
        help="take about as many puzzles of each theme (or of each of --themes)",
    )
