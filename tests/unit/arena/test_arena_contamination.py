"""Contamination: the page shows shares of data that could be searched, and counts what could not."""

import json
from pathlib import Path

import pytest

from arena.sections.contamination import contamination_sections
from rookery.errors import InvalidInput

DATA = {"positions": 10, "unread": 1, "files": 1, "missing": 0, "missing_files": [], "sha256": {}}


def test_data_that_could_not_be_searched_has_no_share(tmp_path: Path) -> None:
    overlap = {
        "exams": [{"name": "a.csv", "positions": 4, "sha256": "0", "seen": {"read": 1, "gone": 0}}],
        "data": [
            {"name": "read", **DATA},
            {"name": "gone", **DATA, "positions": 0, "files": 0, "missing": 2},
        ],
        "positions": [{"exams": ["a.csv"], "fen": "4k3/8/8/8/8/8/8/4K3 w - - 0 1", "data": {"read": 1}}],
    }
    (tmp_path / "contamination.json").write_text(json.dumps(overlap))
    (section,) = contamination_sections(tmp_path)
    seen, data = section.tables
    assert {name: cell.estimate.mean for name, cell in seen.rows[0].cells.items()} == {"read": 0.25}
    assert [row.cells["gone"].estimate.mean for row in data.rows] == [0, 1, 0, 2]
    assert section.facts["positions"] == overlap["positions"]
    overlap["data"] = overlap["data"][1:]
    (tmp_path / "contamination.json").write_text(json.dumps(overlap))
    assert [table.name for table in contamination_sections(tmp_path)[0].tables] == ["data"]
    (tmp_path / "contamination.json").write_text("[]")
    with pytest.raises(InvalidInput, match="not the file of `rookery data overlap`"):
        contamination_sections(tmp_path)
