"""Figures from elsewhere beside those of an evaluation: another report.json, or published ones in a file.

A file of published figures is `{"figures": [{"metric": "chessqa/metrics/right", "player": "C1-4B", "mean":
0.483, "ci95": [0.45, 0.516], "source": "...", "date": "2026-03", "differs": "..."}]}`. A metric is named as
in report.json: by section, table and row.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from arena.stats import Estimate
from arena.tables import AGAINST, Cell, MetricRow, Section, Table
from rookery.errors import InvalidInput, validation_message

_MOST_BYTES = 100_000_000
_DECIDES = ("positions", "settings", "files", "reward_version", "engine", "versions", "prompts")
"""The fields of two reports whose figures can be compared only if they are equal."""

Number = Annotated[float, Field(allow_inf_nan=False)]


class PublishedFigure(BaseModel, frozen=True, extra="forbid"):
    """A published figure."""

    metric: str = Field(max_length=200)
    player: str = Field(max_length=100)
    mean: Number
    ci95: tuple[Number, Number] | None = None
    source: str = Field(max_length=300)
    date: str = Field(max_length=40)
    differs: str = Field(default="", max_length=500)
    """What is not the same as here."""


class _Published(BaseModel, extra="forbid"):
    figures: list[PublishedFigure] = Field(max_length=10_000)


@dataclass(frozen=True, slots=True)
class Published:
    """The figures of a file. `report` is its content if it is another report."""

    name: str
    figures: Sequence[PublishedFigure]
    report: Mapping[str, Any] | None = None


def published(path: Path) -> Published:
    """Reads a file of published figures, or another report. Raises `InvalidInput` if it is neither, or one
    figure stands in it twice."""
    place: list[str] = []
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"{str(path)!r} has more than {_MOST_BYTES:,} bytes")
        content = path.read_bytes()
        if b'"sections"' not in content:
            figures = _Published.model_validate_json(content).figures
            counts = Counter((figure.metric, figure.player) for figure in figures)
            if repeated := [key for key, count in counts.items() if count > 1]:
                metric, player = repeated[0]
                raise InvalidInput(f"against {str(path)!r}: two figures of {player!r} for {metric!r}")
            return Published(path.stem, figures)
        report, figures = _Report.model_validate_json(content), []
        for *place, estimate in _estimates(report):
            section, table, metric, player = place
            name = f"{section}/{table}/{metric}"
            figures.append(
                PublishedFigure(metric=name, player=player, mean=estimate["mean"], ci95=_bounds(estimate),
                       source=str(path)[:300], date="")
            )  # fmt: skip
    except OSError as error:
        raise InvalidInput(f"against {str(path)!r}: {error}") from error
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False)
        located = {**first, "loc": ("sections", *place, *first["loc"]) if place else first["loc"]}
        message = validation_message([located], root="the file")
        raise InvalidInput(f"against {str(path)!r}: {message}") from error
    return Published(path.parent.name or path.stem, figures, report.model_dump())


class _Report(BaseModel, extra="allow"):
    sections: dict[str, dict[str, Any]]


def _estimates(report: _Report) -> Iterator[tuple[Any, ...]]:
    """What has a mean, after its section, table, metric and player."""
    for section, tables in report.sections.items():
        for table, metrics in tables.items():
            for metric, players in metrics.items() if isinstance(metrics, Mapping) else ():
                for player, estimate in players.items() if isinstance(players, Mapping) else ():
                    if isinstance(estimate, Mapping) and estimate.get("mean") is not None:
                        yield section, table, metric, player, estimate


def _bounds(estimate: Mapping[str, Any]) -> Any:
    bounds = estimate.get("ci95")
    return None if isinstance(bounds, list) and None in bounds else bounds


def against(other: Published, sections: Sequence[Section], *, report: Mapping[str, Any]) -> Section:
    """Every metric of the sections that the other has too, with its players beside those of here. `report` is
    what report.json says of this evaluation."""
    figures = defaultdict(list)
    for figure in other.figures:
        figures[figure.metric].append(figure)
    rows = []
    for section in sections:
        for number, table in enumerate(section.tables):
            beside = f", {table.title}" if number else ""
            for row in table.rows:
                theirs = figures.get(f"{section.name}/{table.name}/{row.metric.name}")
                if not theirs:
                    continue
                cells = {name: Cell(cell.estimate) for name, cell in row.cells.items()}
                cells |= {f"{f.player} ({other.name})": Cell(Estimate(f.mean, f.ci95)) for f in theirs}
                why = dict.fromkeys("; ".join(filter(None, (f.source, f.date, f.differs))) for f in theirs)
                metric = replace(row.metric, name=f"{section.name}/{table.name}/{row.metric.name}",
                                 title=f"{section.title}{beside}: {row.metric.title}",
                                 explanation="" if other.report else " | ".join(why))  # fmt: skip
                rows.append(MetricRow(metric, cells))
    note = "Intervals of each by itself: the questions are not paired."
    if other.report:
        unequal = [name for name in _DECIDES if report.get(name) != other.report.get(name)]
        note = (
            f"Not equal in both reports: {', '.join(unequal)}."
            if unequal
            else "Both asked the same questions."
        )
    name = f"{AGAINST}{other.name}"
    return Section(
        name, f"Against {other.name}", note, [Table("figures", "Figures of both", rows)] if rows else []
    )
