"""Renders the evaluation as one self-contained HTML page, without scripts or network, in light and dark.

The layout is in page.html. Every text from a model, a file or a flag is escaped here.
"""

import base64
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

import chess
import chess.svg

from arena.answers import Answers, PlayerAnswer, read_claims
from arena.stats import Estimate
from arena.tables import Cell, Metric, MetricRow, Section, Table, change, figure, interval, judgement
from rookery.plots.picture import Theme
from rookery.prompt import mirrored_move

EXAMPLES = 8

_BEST = "#1d7a46cc"
_PLAYERS = ("#8a919c", "#3b82d6", "#c9771f", "#9a5fd0", "#1496a8", "#d0508a", "#7d8a2e", "#b5524a")
"""The colours of players, in plots and arrows, which light and dark pages can have."""
_NOTE = (
    "Taken at even distances from the positions in the order asked, not chosen by result. Arrows: green the "
    "engine's best move, and the greedy move of each player in its colour. Underlined in the answers: claims "
    "about the board, green if they are true, red if they are false."
)


def render_examples(sides: Mapping[str, Sequence[Answers]]) -> str:
    """The heading, and at most `EXAMPLES` positions with all answers of each player."""
    total = len(next(iter(sides.values())))
    count = min(EXAMPLES, total)
    cards = [
        _example({name: side[index * total // count] for name, side in sides.items()})
        for index in range(count)
    ]
    return (
        f'<h2 id="examples">Examples</h2><p class="soft">{_NOTE}</p>{cards[0]}'
        f"<details><summary>{count - 1} more</summary>{''.join(cards[1:])}</details>"
    )


def _example(sides: Mapping[str, Answers]) -> str:
    position = next(iter(sides.values())).position
    board = chess.Board(position.fen)
    best = next(
        (_on(board, s, a.verdict.best.uci) for s in sides.values() for a in s.every if a.verdict.best), None
    )
    answers = "".join(_side(name, side, board) for name, side in sides.items())
    return (
        f'<div class="card example"><div><img class="board" src="{_picture(board, sides, best)}" '
        f'alt="{escape(position.fen)}"><p>{"White" if board.turn else "Black"} to move, {position.phase}.<br>'
        f"Best: <strong>{escape(board.san(best)) if best else 'not judged'}</strong></p>"
        f'<p class="soft">{escape(position.id)}</p></div><div class="sides">{answers}</div></div>'
    )


def _on(board: chess.Board, side: Answers, uci: str) -> chess.Move:
    """The move on the board of the position, which the player may have seen mirrored."""
    sees_it = chess.Board(side.fen).turn == board.turn
    return chess.Move.from_uci(uci if sees_it else mirrored_move(uci))


def _side(name: str, side: Answers, board: chess.Board) -> str:
    mirrored = chess.Board(side.fen).turn != board.turn
    note = ' <span class="soft">reads the mirrored board</span>' if mirrored else ""
    labels = ["greedy"] + ["sampled"] * len(side.samples)
    items = "".join(
        f'<li>{_verdict(answer, side, board)} <span class="soft">{label}</span>'
        f"<code>{_marked(answer, side.fen)}</code></li>"
        for label, answer in zip(labels, side.every, strict=True)
    )
    return f"<div><h3>{escape(name)}{note}</h3><ol>{items}</ol></div>"


def _marked(answer: PlayerAnswer, fen: str) -> str:
    """The text with the claims that were checked on the board, as HTML."""
    reading = read_claims(answer, fen)
    parts, end = [], 0
    for claim in sorted(reading.claims if reading else (), key=lambda claim: claim.start):
        if claim.true is not None and claim.start >= end:
            kind = "better" if claim.true else "worse"
            words = escape(answer.text[claim.start : claim.end])
            parts += [escape(answer.text[end : claim.start]), f'<span class="{kind}">{words}</span>']
            end = claim.end
    return "".join([*parts, escape(answer.text[end:])])


def _verdict(answer: PlayerAnswer, side: Answers, board: chess.Board) -> str:
    verdict = answer.verdict
    if verdict.move is None or verdict.regret is None:
        return f'<strong class="worse">{escape(verdict.outcome.replace("_", " "))}</strong>'
    words = "the best move" if verdict.move == verdict.best else f"regret {verdict.regret:.3f}"
    return f'<strong class="better">{escape(board.san(_on(board, side, verdict.move.uci)))}</strong> {words}'


def _picture(board: chess.Board, sides: Mapping[str, Answers], best: chess.Move | None) -> str:
    arrows = [chess.svg.Arrow(best.from_square, best.to_square, color=_BEST)] if best else []
    for place, side in enumerate(sides.values()):
        if side.greedy.verdict.move:
            move = _on(board, side, side.greedy.verdict.move.uci)
            colour = f"{_colour(place)}cc"
            arrows.append(chess.svg.Arrow(move.from_square, move.to_square, color=colour))
    svg = chess.svg.board(board, arrows=arrows, orientation=board.turn, size=250)
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


_SETTINGS = (
    "players", "positions", "settings", "files", "prompts", "cost", "interval", "reward_version", "engine",
    "versions",
)  # fmt: skip
"""The fields of report.json that the page shows at its end."""

_WHISKERS_PX, _WHISKER_PX = 140, 11
"""The width of a plot, and the height of each player in it."""
_INTRODUCTION = (
    "Brackets are 95% intervals. Plots show those of the players, each in its colour, from the first one "
    "downwards; the dotted line is where the first one is. A second line is the difference from the first "
    "player, paired on the same questions: green if it is better, red if it is worse, grey if it may be "
    "chance. Of twenty comparisons of equal players, one is green or red by chance. Grey columns are "
    "references."
)


def _colour(place: int) -> str:
    return _PLAYERS[place % len(_PLAYERS)]


def _swatch(place: int) -> str:
    return f'<span class="swatch" style="background:{_colour(place)}"></span>'


def render_page(
    sections: Sequence[Section],
    answers: Mapping[str, Sequence[Answers]],
    report: Mapping[str, Any],
    curves: Mapping[Theme, bytes],
) -> str:
    """The page of an evaluation. `answers` are those to the positions, by player and reference; some are
    shown. `report` is the content of report.json, `curves` has PNGs by theme."""
    players = list(report["players"])
    parts = [_section(section, players, place) for place, section in enumerate(sections)]
    if curves:
        parts.append(f'<h2 id="curve">Learning curve</h2><div class="card">{_curve(curves)}</div>')
    if answers:
        parts.append(render_examples({name: answers[name] for name in players}))
    return Template(files(__package__).joinpath("page.html").read_text()).substitute(
        title=escape(
            " and ".join(players if len(players) < 3 else [players[0], f"{len(players) - 1} others"])
        ),
        introduction=_INTRODUCTION,
        summary=_summary(report["summary"], players),
        legend="".join(
            f"<li>{_swatch(place)}{escape(name)}{', which the others are compared with' * (not place)}</li>"
            for place, name in enumerate(players)
        ),
        contents=" ".join(
            f'<a href="#part-{place}">{escape(section.title)}</a>' for place, section in enumerate(sections)
        ),
        parts="\n".join(parts),
        settings="".join(
            f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_plain(report[name]))}</dd>"
            for name in _SETTINGS
        ),
    )


def markdown(sections: Sequence[Section], report: Mapping[str, Any]) -> str:
    """The summary, and the first table of each section, as tables of Markdown."""
    lines = [f"- {_cell_text(line)}" for line in report["summary"]]
    for section in (section for section in sections if section.tables):
        table = section.tables[0]
        names = list(dict.fromkeys(name for row in table.rows for name in row.cells))
        heads = " | ".join(map(_cell_text, names))
        lines += ["", f"## {_cell_text(f'{section.title}: {table.title}')}", ""]
        lines += [f"| | {heads} |", f"|---|{'---|' * len(names)}"]
        lines += [
            f"| {_cell_text(row.metric.title)} | {' | '.join(_plain_cell(row, name) for name in names)} |"
            for row in table.rows
        ]
    return "\n".join(lines) + "\n"


def _plain_cell(row: MetricRow, name: str) -> str:
    cell, metric = row.cells.get(name), row.metric
    if cell is None:
        return ""
    mean = cell.estimate.mean
    shown = figure(metric, mean) if mean is not None or not cell.estimate.ci95 else ""
    text = f"{shown} {interval(metric, cell.estimate)}".strip()
    return text if cell.difference is None else f"{text}; {change(metric, cell.difference)}"


def _cell_text(text: str) -> str:
    """A text of others in a line of Markdown."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", " ".join(text.split()))


def _summary(lines: Sequence[str], players: Sequence[str]) -> str:
    """The summary as a list. With more than two players, in what each is better is folded below who is."""
    items = [f"<li>{_coloured(line)}</li>" for line in lines]
    if len(players) < 3:
        return f'<ul class="summary">{"".join(items)}</ul>'
    first, each, others = items[:1], items[1 : len(players)], items[len(players) :]
    return (
        f'<ul class="summary">{"".join([*first, *others])}</ul><details><summary>In what, and by how much'
        f'</summary><ul class="summary">{"".join(each)}</ul></details>'
    )


def _coloured(line: str) -> str:
    """A line of the summary, whose `better in` and `worse in` have their colours."""
    return re.sub(r"\b(better|worse) in\b", r'<strong class="\1">\1</strong> in', escape(line))


def _section(section: Section, players: Sequence[str], place: int) -> str:
    """A section with its first table; the others can be unfolded."""
    first, *others = (_table(table, players) for table in section.tables) if section.tables else ("",)
    titles = ", ".join(table.title for table in section.tables[1:])
    folded = f"<details><summary>{escape(titles)}</summary>{''.join(others)}</details>" if others else ""
    return (
        f'<h2 id="part-{place}">{escape(section.title)}</h2><p class="soft">{escape(section.note)}</p>'
        f"{first}{folded}"
    )


def _table(table: Table, players: Sequence[str]) -> str:
    """A table with a plot of the players, a column for each of them, then one for each reference."""
    unsorted = dict.fromkeys(name for row in table.rows for name in row.cells)
    names = sorted(unsorted, key=lambda name: name not in players)
    heads = "".join(
        f"<th>{_swatch(players.index(name)) if name in players else ''}{escape(name)}</th>" for name in names
    )
    rows = "".join(_row(row, names, players) for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>{note}<div class="card"><table>'
        f"<thead><tr><th></th><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: MetricRow, names: Sequence[str], players: Sequence[str]) -> str:
    metric = row.metric
    small = f"<small>{escape(metric.explanation)}</small>" if metric.explanation else ""
    cells = "".join(
        f"<td{'' if name in players else ' class=soft'}>{_cell(metric, row.cells.get(name))}</td>"
        for name in names
    )
    estimates = {name: row.cells[name].estimate for name in players if name in row.cells}
    whiskers = _whiskers(metric, estimates, players)
    return f'<tr><td class="name">{escape(metric.title)}{small}</td><td>{whiskers}</td>{cells}</tr>'


def _cell(metric: Metric, cell: Cell | None) -> str:
    if cell is None:
        return "-"
    text = f'{figure(metric, cell.estimate.mean)} <span class="ci">{interval(metric, cell.estimate)}</span>'
    if cell.difference is None:
        return text
    words, kind = change(metric, cell.difference), judgement(metric, cell.difference)
    return f'{text}<br><span class="ci {kind}">{words}</span>'


def _whiskers(metric: Metric, estimates: Mapping[str, Estimate], players: Sequence[str]) -> str:
    """An SVG of the intervals on one axis, the first player's on top; empty if there are fewer than two."""
    drawn = [
        (name, e.mean, e.ci95)
        for name, e in estimates.items()
        if e.mean is not None and e.ci95 and all(map(math.isfinite, e.ci95))
    ]
    if len(drawn) < 2:
        return ""
    low = min(ci[0] for _, _, ci in drawn)
    span = max(ci[1] for _, _, ci in drawn) - low or 1.0
    height = _WHISKER_PX * len(drawn) + 6
    marks = []
    for line, (name, mean, ci) in enumerate(drawn):
        x0, x, x1 = (6 + (_WHISKERS_PX - 12) * (value - low) / span for value in (ci[0], mean, ci[1]))
        y, colour = 3 + _WHISKER_PX * (line + 0.5), _colour(players.index(name))
        if name == players[0]:
            marks.append(f'<line class="first" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
        label = escape(f"{name}: {figure(metric, mean)} {interval(metric, estimates[name])}")
        marks.append(
            f'<g stroke="{colour}" fill="{colour}"><title>{label}</title>'
            f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{y}" y2="{y}" stroke-width="2" stroke-linecap="round"/>'
            f'<circle cx="{x:.1f}" cy="{y}" r="3.4"/></g>'
        )
    size = f'width="{_WHISKERS_PX}" height="{height}"'
    return f'<svg {size} role="img" aria-label="intervals">{"".join(marks)}</svg>'


def _curve(curves: Mapping[Theme, bytes]) -> str:
    light, dark = (
        f"data:image/png;base64,{base64.b64encode(curves[theme]).decode()}" for theme in ("light", "dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img class="curve" src="{light}" alt="Training statistics by step"></picture>'
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)
