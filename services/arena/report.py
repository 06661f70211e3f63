"""Writes an evaluation to a run folder: report.json, answers.jsonl, report.html and learning_curve.png.

Each file is replaced atomically, so that nobody reads an incomplete one.
"""

import importlib.metadata
import json
import logging
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rookery import __version__
from rookery.errors import InvalidInput, NotFound
from rookery.plots.picture import Theme, overview
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.trace import Trace
from services.arena.evaluation import Evaluation
from services.arena.measures import ALL, COLOURS, FURTHER, METRICS, Answers, Part
from services.arena.page import render_page
from services.arena.positions import fens_sha256
from services.arena.stats import LEVEL, RESAMPLES, Comparison, Estimate

logger = logging.getLogger(__name__)

REPORT_FILE = "report.json"
ANSWERS_FILE = "answers.jsonl"
PAGE_FILE = "report.html"
CURVE_FILE = "learning_curve.png"

_PACKAGES = ("chess", "matplotlib", "numpy")


def report_json(evaluation: Evaluation) -> dict[str, Any]:
    """The content of report.json: the metrics of both policies, and everything needed to evaluate again."""
    parts, questions = evaluation.parts, evaluation.questions
    verdicts = [t.verdict for side in (evaluation.before, evaluation.after) for a in side for t in _traces(a)]
    return {
        "metrics": _metrics(parts[ALL], METRICS),
        "further_metrics": _metrics(parts[ALL], FURTHER),
        "by_phase": {name: _part(p) for name, p in parts.items() if name not in (ALL, *COLOURS)},
        "by_colour": {name: _part(p) for name, p in parts.items() if name in COLOURS},
        "outcomes": {"before": _outcomes(evaluation.before), "after": _outcomes(evaluation.after)},
        "policies": {
            side: asdict(policy)
            for side, policy in zip(("before", "after"), evaluation.policies, strict=True)
        },
        "positions": {
            "count": len(evaluation.chosen.positions),
            "source": evaluation.chosen.source,
            "file_sha256": evaluation.chosen.file_sha256,
            "fens_sha256": fens_sha256(evaluation.chosen.positions),
        },
        "samples": questions.samples,
        "sampling": {"sampled": asdict(questions.sampling), "greedy": asdict(questions.greedy)},
        "style": questions.style,
        "seeds": {"evaluation": questions.seed},
        "interval": {
            "level": LEVEL,
            "method": "percentile bootstrap over positions, paired",
            "resamples": RESAMPLES,
        },
        "reward_version": sorted({v.reward_version for v in verdicts}),
        "engine": sorted({v.engine.id for v in verdicts if v.engine}),
        "versions": {"rookery": __version__, "python": platform.python_version(), **_versions()},
        "seconds": round(evaluation.seconds, 3),
    }


def write(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Writes every file of the report into `folder` and returns the content of report.json."""
    folder.mkdir(parents=True, exist_ok=True)
    report = report_json(evaluation)
    curves = _curves(folder)
    if curves:
        replace_file(folder / CURVE_FILE, curves["light"])
    replace_file(folder / ANSWERS_FILE, _answer_lines(evaluation).encode())
    replace_file(folder / PAGE_FILE, render_page(evaluation, report, curves).encode())
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


def _curves(folder: Path) -> dict[Theme, bytes]:
    """The learning curve in both themes. Empty, with a warning in the log, if the run has no metrics."""
    try:
        steps = read_metrics(folder / METRICS_FILE)
        return {"light": overview(steps, theme="light"), "dark": overview(steps, theme="dark")}
    except (NotFound, InvalidInput) as error:
        logger.warning("%s", error)
        return {}


def _metrics(part: Part, names: Iterable[str]) -> dict[str, Any]:
    return {name: _comparison(part.comparisons[name]) for name in names}


def _part(part: Part) -> dict[str, Any]:
    return {"positions": part.positions, "metrics": _metrics(part, (*METRICS, "regret_both_legal"))}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "before": _estimate(comparison.before),
        "after": _estimate(comparison.after),
        "difference": _estimate(comparison.difference),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, "ci95": list(estimate.ci95) if estimate.ci95 else None}


def _outcomes(side: Sequence[Answers]) -> dict[str, int]:
    """The number of sampled answers with each outcome, largest first."""
    counts: dict[str, int] = {}
    for answers in side:
        for trace in answers.samples:
            counts[trace.verdict.outcome.value] = counts.get(trace.verdict.outcome.value, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def _traces(answers: Answers) -> tuple[Trace, ...]:
    return (answers.greedy, *answers.samples)


def _answer_lines(evaluation: Evaluation) -> str:
    """The content of answers.jsonl: one line per position, with all answers and their verdicts.

    This is enough to compute the metrics again.
    """
    return "".join(
        json.dumps(
            {
                "position": asdict(before.position),
                "prompt_fen": before.prompt.fen,
                "before": [_answer(trace) for trace in _traces(before)],
                "after": [_answer(trace) for trace in _traces(after)],
            }
        )
        + "\n"
        for before, after in zip(evaluation.before, evaluation.after, strict=True)
    )


def _answer(trace: Trace) -> dict[str, Any]:
    verdict = trace.verdict
    return {
        "id": trace.id,
        "text": trace.completion.text,
        "finish_reason": trace.completion.finish_reason,
        "seed": trace.completion.seed,
        "outcome": verdict.outcome,
        "reward": verdict.reward,
        "regret": verdict.regret,
        "move": verdict.move.uci if verdict.move else None,
        "best": verdict.best.uci if verdict.best else None,
    }
