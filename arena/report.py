"""Writes an evaluation to a folder: report.json, report.html, report.md and learning_curve.png.

Each file is replaced atomically, so that nobody reads an incomplete one. The answers are in the answer store.
"""

import hashlib
import importlib.metadata
import json
import logging
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import chess

from arena.answer_store import tokens_of
from arena.answers import Answers
from arena.page import markdown, render_page
from arena.pieces import RANDOM
from arena.positions import Chosen, fens_sha256
from arena.stats import LEVEL, RESAMPLES
from arena.tables import Section, section_json, summary
from rookery import __version__
from rookery.config.arena import ArenaEvaluateSettings, CurveSettings
from rookery.errors import InvalidInput, NotFound
from rookery.files import replace_file
from rookery.plots.picture import Theme, overview
from rookery.plots.steps import METRICS_FILE, read_metrics, strength_steps
from rookery.prompt import render
from rookery.remote import find_run
from rookery.trace import Phase, Position

logger = logging.getLogger(__name__)

REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
CURVE_FILE = "learning_curve.png"

_PACKAGES = ("chess", "matplotlib", "numpy")
_SHOWN = (
    "seed", "samples", "temperature", "styles", "puzzle_count", "chessqa_count", "chessqa_context",
    "chessqa_protocol",
)  # fmt: skip
_FILES = ("positions", "exclude", "puzzles", "suites", "chessqa")
_START = Position("start", chess.STARTING_FEN, 0, Phase.OPENING, "start")


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation. `players` has the description of each player by name, the baseline first.
    `answers` are those to the positions, of players and references."""

    settings: ArenaEvaluateSettings
    chosen: Chosen | None
    players: Mapping[str, Mapping[str, object]]
    reward_version: str
    sections: Sequence[Section]
    answers: Mapping[str, Sequence[Answers]]
    records: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """The records of all questions in the store, by player and by the hash of the question."""


def report_json(evaluation: EvaluationResult) -> dict[str, Any]:
    """The content of report.json: the figures of each section, and everything needed to evaluate again."""
    chosen = evaluation.chosen
    positions = chosen and {
        "count": len(chosen.positions),
        "source": chosen.source,
        "file_sha256": chosen.file_sha256,
        "fens_sha256": fens_sha256(chosen.positions),
        "excluded": chosen.excluded,
        **chosen.report.facts,
    }
    engines = {
        a.greedy.verdict.engine.id for s in evaluation.answers.values() for a in s if a.greedy.verdict.engine
    }
    settings, players = evaluation.settings, list(evaluation.players)
    given = [getattr(settings, name) for name in _FILES]
    files = [
        path
        for value in given
        for path in (value if isinstance(value, tuple) else [value])
        if path and path.is_file()
    ]
    styles = {str(player["style"]) for player in evaluation.players.values() if "style" in player}
    return {
        "summary": summary(evaluation.sections, players=players),
        "players": evaluation.players,
        "sections": {section.name: section_json(section) for section in evaluation.sections},
        "positions": positions,
        "settings": {name: getattr(settings, name) for name in _SHOWN},
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "prompts": {style: _digest(render(_START, style=style).messages) for style in sorted(styles)},
        "cost": {name: _cost(records) for name, records in evaluation.records.items()},
        "interval": {
            "level": LEVEL,
            "method": "percentile bootstrap over positions, paired; Wilson's of shares with one answer to a "
            "position or the same at all",
            "resamples": RESAMPLES,
        },
        "reward_version": evaluation.reward_version,
        "engine": sorted(engines),
        "versions": {
            "rookery": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in _PACKAGES},
        },
    }


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _cost(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the answers of a player cost, and a digest of the questions."""
    seconds = [record["seconds"] for record in records.values() if "seconds" in record]
    return {
        "questions": len(records),
        "tokens": sum(map(tokens_of, records.values())),
        "seconds_a_question": round(fmean(seconds), 3) if seconds else None,
        "questions_sha256": _digest(sorted(records)),
    }


def write(evaluation: EvaluationResult, folder: Path) -> dict[str, Any]:
    """Writes every file of the report into `folder` and returns the content of report.json."""
    folder.mkdir(parents=True, exist_ok=True)
    report = report_json(evaluation)
    curves = _curves(folder, random_regret=_regret_of_random_moves(evaluation.sections))
    if curves:
        replace_file(folder / CURVE_FILE, curves["light"])
    page = render_page(evaluation.sections, evaluation.answers, report, curves)
    replace_file(folder / PAGE_FILE, page.encode())
    replace_file(folder / MARKDOWN_FILE, markdown(evaluation.sections, report).encode())
    replace_file(folder / REPORT_FILE, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
    return report


def learning_curve(folder: Path, *, theme: Theme = "light", random_regret: float | None = None) -> bytes:
    """The curves of the run in `folder` as PNG, with the strength of its versions if it was measured.

    `random_regret` is the regret of a random legal move, drawn for comparison. Raises `NotFound` if it has no
    metrics, `InvalidInput` if its files cannot be read.
    """
    reference = {} if random_regret is None else {"regret_random": random_regret}
    steps = [{**step, **reference} for step in read_metrics(folder / METRICS_FILE)]
    return overview(steps, strength_steps(folder), theme=theme)


def write_curve(settings: CurveSettings) -> None:
    """Writes the curves of a run to its folder. Raises as `learning_curve` does."""
    folder = find_run(settings.run)
    replace_file(folder / CURVE_FILE, learning_curve(folder))


def _regret_of_random_moves(sections: Sequence[Section]) -> float | None:
    """The regret of the reference in the section on positions; None without it."""
    rows = (row for s in sections if s.name == "positions" for table in s.tables for row in table.rows)
    cells = (row.cells.get(RANDOM) for row in rows if row.metric.name == "regret_legal")
    return next((cell.estimate.mean for cell in cells if cell), None)


def _curves(folder: Path, *, random_regret: float | None) -> dict[Theme, bytes]:
    """The learning curve in both themes. Empty, with a message in the log, if the run has no metrics."""
    try:
        themes: tuple[Theme, ...] = ("light", "dark")
        return {theme: learning_curve(folder, theme=theme, random_regret=random_regret) for theme in themes}
    except NotFound:
        return {}
    except InvalidInput as error:
        logger.warning("%s", error)
        return {}
