"""Writes a data set of preference pairs: `pairs.parquet`, `manifest.json` and, if wanted, JSON lines."""

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from services.data.pairs.pairing import Pairing
from services.data.store.jsonl import writing_lines
from services.data.store.kinds import PAIRS
from services.data.store.manifest import write_manifest
from services.data.store.storage import Folder
from services.data.store.tables import writing

PARQUET = "pairs.parquet"


def write_pairs(
    pairing: Pairing, folder: Folder, *, terms: Mapping[str, Any], jsonl: str | None = None
) -> dict[str, Any]:
    """Writes the pairs and returns the manifest. `jsonl` names the second file, if one is wanted."""
    summary = _Summary()
    with ExitStack() as files:
        table = files.enter_context(writing(folder, PARQUET, PAIRS))
        lines = files.enter_context(writing_lines(folder, jsonl)) if jsonl else None
        for pair in pairing.pairs():
            summary.add(pair)
            table.add(pair)
            if lines:
                lines.add(asdict(pair))
    written = [table.written, *([lines.written] if lines else [])]
    return write_manifest(folder, PAIRS.name, written, terms=terms, facts=summary.facts(pairing.counts()))


class _Summary:
    """Statistics of the pairs."""

    def __init__(self) -> None:
        self.by: dict[str, Counter[str]] = {
            "origin": Counter(),
            "phase": Counter(),
            "reward_version": Counter(),
        }
        self.gaps: list[float] = []

    def add(self, pair: Any) -> None:
        for name, counter in self.by.items():
            counter[str(getattr(pair, name))] += 1
        self.gaps.append(pair.gap)

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        """The statistics for the manifest. `counts` are those of the parts."""
        pairs = len(self.gaps)
        positions, made = counts.pop("positions", 0), counts.pop("pairs", 0)
        return {
            "pairs": pairs,
            "positions": positions,
            "left_out": {**dict(sorted(counts.items())), "repeated_or_more_than_wanted": made - pairs},
            "mean_gap": round(math.fsum(self.gaps) / pairs, 6) if pairs else None,
            **{f"by_{name}": dict(sorted(counter.items())) for name, counter in self.by.items()},
        }
