"""Contamination: which positions of the exams are in data that a player was trained on.

`rookery data overlap` counts them, and writes a file `contamination*.json` into the folder of the report.
"""

import json
from pathlib import Path

from arena.stats import Estimate
from arena.tables import Cell, Metric, MetricRow, Section, Table
from rookery.errors import InvalidInput
from rookery.intervals import wilson

_FILES = "contamination*.json"
_NOTE = (
    "The share of an exam's positions that are in a player's data, mirrored or not, by the first four fields "
    "of the FEN. The positions are in report.json. Data that is not here, or has no FEN, cannot be "
    "searched: the second table counts it."
)


def contamination_sections(folder: Path) -> list[Section]:
    """A section for each file beside the report. Raises `InvalidInput` if a file is not one of
    `rookery data overlap`."""
    return [_section(path) for path in sorted(folder.glob(_FILES))]


def _section(path: Path) -> Section:
    try:
        overlap = json.loads(path.read_text())
        searched = {data["name"] for data in overlap["data"] if data["positions"]}
        shares = [
            MetricRow(
                Metric(exam["name"], exam["name"], f"{exam['positions']:,} positions", better="neither"),
                {name: Cell(Estimate(n / exam["positions"], wilson(n, exam["positions"])))
                 for name, n in exam["seen"].items() if name in searched})
            for exam in overlap["exams"] if searched
        ]  # fmt: skip
        counts = [
            MetricRow(
                Metric(name, title, unit="whole", better="neither"),
                {data["name"]: Cell(Estimate(float(data[name]), None)) for data in overlap["data"]})
            for name, title in (("positions", "Positions in the data"), ("unread", "Rows without a position"),
                                ("files", "Files"), ("missing", "Files that are not here"))
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise InvalidInput(f"not the file of `rookery data overlap`: {str(path)!r}: {error!r}") from error
    data = Table("data", "The data", counts)
    tables = [*([Table("seen", "Seen in training", shares)] if shares else []), data]
    facts = {"positions": overlap["positions"], "data_files": overlap["data"]}
    return Section(path.stem, "Contamination", _NOTE, tables, facts)
