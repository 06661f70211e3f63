"""Renders the evaluation as one self-contained HTML page, without scripts or network, in light and dark.

The layout is in page.html. Every text from a model, a file or a flag is escaped here.
"""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import chess
import chess.svg

from rookery.plots.picture import Theme
from rookery.plots.steps import METRICS_FILE
from rookery.trace import Trace
from services.arena.evaluation import Evaluation
from services.arena.measures import ALL, Answers, Part, mover
from services.arena.stats import Comparison, Estimate
from services.arena.wording import NAMES, figure, interval, judgement

EXAMPLES = 8

_HEADLINE = ("legal_rate", "legal_rate_greedy", "reward", "regret_legal", "regret_both_legal", "box_rate")
_PARTS = ("legal_rate", "reward", "regret_both_legal")
_BEST, _AFTER, _BEFORE = "#1d7a46cc", "#2563a8cc", "#8a919ccc"

_READING = (
    "Brackets are 95% intervals from a bootstrap over positions; the difference is paired, after minus "
    "before on the same positions. Unless it says greedy, a figure is over answers sampled at temperature "
    "1. Regret is the win probability given away against the engine's best move."
)
_EXAMPLES_NOTE = (
    "Taken at even distances from the positions in the order asked, not chosen by result. Arrows: green "
    "the engine's best move, blue the greedy move after, grey the greedy move before."
)


def render_page(evaluation: Evaluation, report: Mapping[str, Any], curves: Mapping[Theme, bytes]) -> str:
    """The page of `evaluation`. `report` is the content of its report.json, `curves` has PNGs by theme."""
    before, after = evaluation.policies
    count, samples = len(evaluation.chosen.positions), evaluation.questions.samples
    template = Template(files(__package__).joinpath("page.html").read_text())
    return template.substitute(
        title=escape(f"{before.name} to {after.name}"),
        subtitle=f"{count:,} held-out positions; from both policies 1 greedy and {samples} sampled answers.",
        headline=_headline(evaluation.parts[ALL]),
        reading=_READING,
        parts=_parts(evaluation.parts),
        curve=_curve(curves),
        examples_note=_EXAMPLES_NOTE,
        examples="\n".join(_examples(evaluation)),
        settings="".join(_settings(report)),
    )


def _headline(part: Part) -> str:
    rows = "".join(_row(name, part.comparisons[name]) for name in _HEADLINE)
    heads = "".join(f"<th>{head}</th>" for head in ("", "before", "after", "", "difference", ""))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _row(name: str, comparison: Comparison) -> str:
    title, explanation = NAMES[name]
    verdict = judgement(name, comparison)
    return (
        f'<tr><td class="name">{title}<small>{explanation}</small></td>'
        f"<td>{_estimate(name, comparison.before)}</td><td>{_estimate(name, comparison.after)}</td>"
        f"<td>{_whiskers(comparison)}</td>"
        f"<td>{_estimate(name, comparison.difference, signed=True)}</td>"
        f'<td class="{verdict}">{verdict}</td></tr>'
    )


def _estimate(name: str, estimate: Estimate, *, signed: bool = False) -> str:
    mean = figure(name, estimate.mean, signed=signed)
    return f'{mean}<br><span class="ci">{interval(name, estimate, signed=signed)}</span>'


def _whiskers(comparison: Comparison) -> str:
    """An SVG of both intervals on one axis, before above after; empty if there is none."""
    sides = [("before", comparison.before, 9), ("after", comparison.after, 23)]
    drawn = [(css, side.mean, side.ci95, y) for css, side, y in sides if side.mean is not None and side.ci95]
    if not drawn:
        return ""
    low = min(ci[0] for _, _, ci, _ in drawn)
    span = max(ci[1] for _, _, ci, _ in drawn) - low or 1.0
    marks = []
    for css, mean, ci, y in drawn:
        x0, x, x1 = (6 + 128 * (value - low) / span for value in (ci[0], mean, ci[1]))
        marks.append(
            f'<g class="{css}" stroke="currentColor" fill="currentColor">'
            f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{y}" y2="{y}" stroke-width="2" stroke-linecap="round"/>'
            f'<circle cx="{x:.1f}" cy="{y}" r="3.4"/></g>'
        )
    return f'<svg width="140" height="32" role="img" aria-label="intervals">{"".join(marks)}</svg>'


def _parts(parts: Mapping[str, Part]) -> str:
    heads = "".join(f"<th>{NAMES[name][0]}</th>" for name in _PARTS)
    rows = "".join(
        f'<tr><td class="name">{_part_name(name)}<small>{part.positions:,} positions</small></td>'
        + "".join(f"<td>{_change(metric, part.comparisons[metric])}</td>" for metric in _PARTS)
        + "</tr>"
        for name, part in parts.items()
        if name != ALL
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _part_name(part: str) -> str:
    return f"{part.capitalize()} to move" if part in ("white", "black") else part.capitalize()


def _change(name: str, comparison: Comparison) -> str:
    before, after = figure(name, comparison.before.mean), figure(name, comparison.after.mean)
    difference = comparison.difference
    css = judgement(name, comparison)
    return (
        f'{before} &rarr; {after}<br><span class="ci {css}">{figure(name, difference.mean, signed=True)} '
        f"{interval(name, difference, signed=True)}</span>"
    )


def _curve(curves: Mapping[Theme, bytes]) -> str:
    if not curves:
        return f'<p class="soft">None: the run folder has no {METRICS_FILE} with figures to draw.</p>'
    light, dark = (_data_uri(curves[theme], "image/png") for theme in ("light", "dark"))
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img class="curve" src="{light}" alt="Training statistics by step"></picture>'
    )


def _examples(evaluation: Evaluation) -> Iterable[str]:
    count = len(evaluation.before)
    shown = min(EXAMPLES, count)
    for i in (index * count // shown for index in range(shown)):
        yield _example(evaluation.before[i], evaluation.after[i])


def _example(before: Answers, after: Answers) -> str:
    position, prompt = before.position, before.prompt
    mirrored = prompt.fen.split()[1] != position.fen.split()[1]
    note = "; board and moves mirrored, as the policy sees them" if mirrored else ""
    asked = "\n".join(message.content for message in prompt.messages if message.role == "user")
    best = next((t.verdict.best for t in _traces(before, after) if t.verdict.best), None)
    return (
        f'<div class="card example"><div><img class="board" src="{_board(before, after)}" '
        f'alt="{escape(prompt.fen)}"><p>{mover(position).capitalize()} to move, {position.phase}{note}.<br>'
        f"Best: <strong>{escape(best.san) if best else 'not judged'}</strong></p>"
        f'<p class="soft">{escape(position.id)}</p></div><div><pre>{escape(asked)}</pre>'
        f'<div class="sides">{_side("before", before)}{_side("after", after)}</div></div></div>'
    )


def _traces(*sides: Answers) -> Iterable[Trace]:
    for answers in sides:
        yield answers.greedy
        yield from answers.samples


def _side(name: str, answers: Answers) -> str:
    labels = ["greedy"] + ["sampled"] * len(answers.samples)
    items = "".join(
        f'<li>{_verdict(trace)} <span class="soft">{label}</span>'
        f"<code>{escape(trace.completion.text)}</code></li>"
        for label, trace in zip(labels, _traces(answers), strict=True)
    )
    return f'<div><h3 class="{name}">{name.capitalize()}</h3><ol>{items}</ol></div>'


def _verdict(trace: Trace) -> str:
    verdict = trace.verdict
    if verdict.move is None or verdict.regret is None:
        return f'<strong class="worse">{escape(verdict.outcome.replace("_", " "))}</strong>'
    best = verdict.move == verdict.best
    words = "the best move" if best else f"regret {figure('regret_legal', verdict.regret)}"
    return f'<strong class="better">{escape(verdict.move.san)}</strong> {words}'


def _board(before: Answers, after: Answers) -> str:
    best = next((t.verdict.best for t in _traces(before, after) if t.verdict.best), None)
    moves = ((best, _BEST), (before.greedy.verdict.move, _BEFORE), (after.greedy.verdict.move, _AFTER))
    arrows = [
        chess.svg.Arrow(move.from_square, move.to_square, color=colour)
        for known, colour in moves
        if known and (move := chess.Move.from_uci(known.uci))
    ]
    board = chess.Board(before.prompt.fen)
    svg = chess.svg.board(board, arrows=arrows, orientation=board.turn, size=250)
    return _data_uri(svg.encode(), "image/svg+xml")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _settings(report: Mapping[str, Any]) -> Iterable[str]:
    shown = ("policies", "positions", "samples", "sampling", "style", "seeds", "interval", "reward_version")
    for name in (*shown, "engine", "versions", "outcomes", "seconds"):
        yield f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_plain(report[name]))}</dd>"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
