"""What every idea of a move has: a weight that says how much it matters beside others.

An idea is true by the definition in its docstring, on the boards before and after the move. Negative
weights are drawbacks.
"""

from dataclasses import dataclass
from typing import ClassVar

import chess


@dataclass(frozen=True, slots=True)
class Idea:
    """Base of all."""

    weight: ClassVar[float] = 1.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        """Squares it is about."""
        return ()
