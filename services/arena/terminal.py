"""The terminal's table of a section."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from services.arena.tables import Cell, Row, Section
from services.arena.wording import figure, interval, judgement

_COLOURS = {"better": "green", "worse": "red", "unclear": "dim"}


def table(section: Section, *, players: Sequence[str]) -> Table:
    """The players' columns of the section's first table, with the differences from the first player."""
    shown = Table(
        title=f"{section.title}: {section.tables[0].title}, 95% intervals",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    shown.add_column("", no_wrap=True)
    for name in players:
        shown.add_column(name, justify="right")
    for row in section.tables[0].rows:
        shown.add_row(row.metric.title, *(_cell(row, row.cells.get(name)) for name in players))
    return shown


def _cell(row: Row, cell: Cell | None) -> Text:
    if cell is None:
        return Text("-", "dim")
    metric, difference = row.metric, cell.difference
    text = Text.assemble(figure(metric, cell.estimate.mean), " ", (interval(metric, cell.estimate), "dim"))
    if difference is not None:
        words = (
            f"\n{figure(metric, difference.mean, signed=True)} {interval(metric, difference, signed=True)}"
        )
        text.append(words, _COLOURS[judgement(metric, difference)])
    return text
