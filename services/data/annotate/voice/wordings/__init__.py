"""The words of every fact and every idea. Importing this package fills the registry."""

from services.data.annotate.voice.wordings import (
    defence,
    drawbacks,
    files,
    kings,
    lines,
    material,
    pawns,
    pieces,
    pressure,
    shape,
    strikes,
    tactics,
)
from services.data.annotate.voice.wordings.registry import FACTS, IDEAS

__all__ = [
    "FACTS",
    "IDEAS",
    "defence",
    "drawbacks",
    "files",
    "kings",
    "lines",
    "material",
    "pawns",
    "pieces",
    "pressure",
    "shape",
    "strikes",
    "tactics",
]
