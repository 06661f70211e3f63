"""Which statistics are drawn in the same panel, and in which unit, as panels.toml has it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from rookery.errors import InvalidInput
from rookery.plots.steps import matching


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: the statistics drawn in it, which have the same unit, and the limits of the y axis.

    A key may be a pattern, for example `component_*` for all components of the reward. With one run, the
    `references` are drawn as dotted lines, each in the colour of the statistic at its place.
    """

    title: str
    keys: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    references: tuple[str, ...] = ()


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_read = TypeAdapter(tuple[Panel, ...]).validate_python

PANELS, STRENGTH = _read(_FILE["training"]), _read(_FILE["strength"])
"""The panels of a run's steps; and those of its evaluated versions, which have intervals."""

OVERVIEW = tuple(panel for title in _FILE["overview"] for panel in PANELS if panel.title == title)
"""The panels of a report."""

LABELS: Mapping[str, str] = _FILE["labels"]


def label_of(key: str) -> str:
    """The label of a key in the legend.

    >>> label_of("kl_behaviour_age2"), label_of("component_delta"), label_of("won_engine")
    ('age 2', 'delta', 'won, engine')
    """
    shortened = re.sub("^(component(_[pa])?|best_moves|moves)_", "", key)
    return LABELS.get(key) or re.sub("^(won|drawn|lost)_", r"\1, ", shortened).replace(
        "kl_behaviour_age", "age "
    )


def choose(
    keys: Sequence[str], *, asked: Sequence[str] = (), panels: Sequence[Panel] = PANELS
) -> list[Panel]:
    """The panels that have any of `keys`, with their patterns resolved.

    With `asked`, which may contain patterns, there is one panel for each matching key instead. Raises
    `InvalidInput` if there is no such panel; the message lists the keys.
    """
    if asked:
        panels = [Panel(key, (key,)) for key in matching(keys, asked)]
    present = [
        replace(panel, keys=tuple(matches), references=tuple(matching(keys, panel.references)))
        for panel in panels
        if (matches := matching(keys, panel.keys))
    ]
    if not present:
        patterns = ", ".join(asked or [key for panel in panels for key in panel.keys])
        available = ", ".join(keys) or "none"
        raise InvalidInput(f"nothing to draw: no step has any of {patterns}; the steps have {available}")
    return present
