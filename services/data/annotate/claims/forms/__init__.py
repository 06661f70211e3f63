"""Every form of a claim, subject by subject. Importing this package fills `GRAMMAR`."""

from services.data.annotate.claims.forms import (
    checks,
    choices,
    comparisons,
    defence,
    files,
    kings,
    lines,
    material,
    pawns,
    pressure,
    results,
    shape,
    standings,
    stations,
    strikes,
    tactics,
)
from services.data.annotate.claims.forms.registry import GRAMMAR

__all__ = [
    "GRAMMAR",
    "checks",
    "choices",
    "comparisons",
    "defence",
    "files",
    "kings",
    "lines",
    "material",
    "pawns",
    "pressure",
    "results",
    "shape",
    "standings",
    "stations",
    "strikes",
    "tactics",
]
