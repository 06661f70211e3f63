"""The terminal's table of a section."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from services.arena.tables import Cell, Row, Section
from services.arena.wording import figure, interval, judgement

_PLAYER_CHARS, _REFERENCE_CHARS = 26, 18
_COLOURS = {"better": "green", "worse": "red", "unclear": "dim"}


def table(section: Section, *, players: Sequence[str], width: int) -> Table:
    """The section's first table: the players, then references if they fit into `width` characters."""
    shown = Table(
        title=f"{section.title}: {section.tables[0].title}, 95% intervals",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    shown.add_column("", no_wrap=True)
    rows = section.tables[0].rows
    columns = {name for row in rows for name in row.cells}
    players = [name for name in players if name in columns] or sorted(columns)
    for name in players:
        shown.add_column(name, justify="right")
    references = list(dict.fromkeys(name for row in rows for name in row.cells if name not in players))
    if width < _PLAYER_CHARS * (len(players) + 1) + _REFERENCE_CHARS * len(references):
        references = []
    for name in references:
        shown.add_column(name, justify="right", style="dim")
    for row in rows:
        means = [
            figure(row.metric, row.cells[n].estimate.mean) if n in row.cells else "-" for n in references
        ]
        shown.add_row(row.metric.title, *(_cell(row, row.cells.get(name)) for name in players), *means)
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
