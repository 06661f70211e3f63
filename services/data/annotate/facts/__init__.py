"""Everything worth knowing about one board, as typed records.

`survey` runs every detector. Each module holds the facts of one subject with their definitions and the
code that finds them.
"""

from collections.abc import Iterator

import chess

from services.data.annotate.facts import files, kings, material, mates, pawns, pieces, tactics
from services.data.annotate.facts.fact import Fact

__all__ = ["Fact", "survey"]

_DETECTORS = (
    material.material,
    pawns.structure,
    files.files,
    kings.kings,
    pieces.pieces,
    tactics.contacts,
    mates.mates,
)


def survey(board: chess.Board) -> Iterator[Fact]:
    """Every fact about a board, subject by subject."""
    for detect in _DETECTORS:
        yield from detect(board)
