"""Matches: shows the results that `python -m services.arena match` or `tournament` wrote."""

import json
from pathlib import Path

from services.arena.tables import Section

MATCH_FILE = Path("matches") / "match.json"


def match_section(folder: Path) -> Section:
    """The section of the match in `folder`; it has no tables if none was played."""
    path = folder / MATCH_FILE
    played = json.loads(path.read_text()) if path.exists() else {}
    return Section("matches", "Matches", "", [], {"match": played})
