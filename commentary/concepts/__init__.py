"""Every concept, subject by subject. Importing this package fills `commentary.concept.CONCEPTS`."""

from commentary.concepts import (
    choices,
    defence,
    files,
    kings,
    lines,
    material,
    mates,
    moves,
    pawns,
    pieces,
    plans,
    shape,
    standings,
    tactics,
)

__all__ = [
    "choices",
    "defence",
    "files",
    "kings",
    "lines",
    "material",
    "mates",
    "moves",
    "pawns",
    "pieces",
    "plans",
    "shape",
    "standings",
    "tactics",
]
