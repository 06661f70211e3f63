"""Writes an evaluation to a folder: report.json, report.html and learning_curve.png.

Each file is replaced atomically, so that nobody reads an incomplete one. The answers are in the answer store.
"""

import importlib.metadata
import json
import logging
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.answers import Answers
from arena.page import render_page
from arena.pieces import RANDOM
from arena.positions import Chosen, fens_sha256
from arena.stats import LEVEL, RESAMPLES
from arena.tables import Section, section_json
from rookery import __version__
from rookery.config.arena import CurveSettings, EvaluateSettings
from rookery.errors import InvalidInput, NotFound
from rookery.plots.picture import Theme, overview
from rookery.plots.steps import METRICS_FILE, read_metrics, strength_steps
from rookery.remote import find_run

logger = logging.getLogger(__name__)

REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
CURVE_FILE = "learning_curve.png"

_PACKAGES = ("chess", "matplotlib", "numpy")
_SHOWN = ("seed", "samples", "temperature", "styles", "puzzle_count")


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of an evaluation. `players` has the description of each player by name, the baseline first.
    `answers` are those to the positions, of players and references."""

    settings: EvaluateSettings
    chosen: Chosen | None
    players: Mapping[str, Mapping[str, object]]
    reward_version: str
    sections: Sequence[Section]
    answers: Mapping[str, Sequence[Answers]]


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
    return {
        "players": evaluation.players,
        "sections": {section.name: section_json(section) for section in evaluation.sections},
        "positions": positions,
        "settings": {name: getattr(evaluation.settings, name) for name in _SHOWN},
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


def write(evaluation: EvaluationResult, folder: Path) -> dict[str, Any]:
    """Writes every file of the report into `folder` and returns the content of report.json."""
    folder.mkdir(parents=True, exist_ok=True)
    report = report_json(evaluation)
    curves = _curves(folder, random_regret=_regret_of_random_moves(evaluation.sections))
    if curves:
        replace_file(folder / CURVE_FILE, curves["light"])
    page = render_page(evaluation.sections, evaluation.answers, report, curves)
    replace_file(folder / PAGE_FILE, page.encode())
    replace_file(folder / REPORT_FILE, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
    return report


def replace_file(path: Path, content: bytes) -> None:
    """Replaces the file atomically: writes `content` to a temporary file beside `path`, then renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
