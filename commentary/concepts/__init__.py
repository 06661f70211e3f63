"""Every concept, subject by subject. Importing this package fills `commentary.concept.CONCEPTS`."""

from commentary.concept import CONCEPTS, unsaid
from commentary.concepts import (  # noqa: F401
    advances,
    castling,
    checks,
    choices,
    contacts,
    defence,
    development,
    drawbacks,
    endings,
    files,
    given,
    kings,
    lines,
    material,
    mates,
    passed,
    pawns,
    pieces,
    plans,
    pressure,
    prose,
    standings,
    strikes,
    tactics,
)

if _without := [name for name, concept in CONCEPTS.items() if concept.holds is unsaid]:
    raise NotImplementedError(f"concepts without a truth: {_without}")
