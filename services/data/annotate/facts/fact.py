"""What every fact has: the squares it is about and the side it speaks for.

A fact is a frozen record of something that is true on one board by the definition in its docstring. It
knows no words and no board: `services.data.annotate.voice` gives it words, and
`services.data.annotate.claims` checks those words with code of its own.
"""

from dataclasses import dataclass

import chess


@dataclass(frozen=True, slots=True)
class Fact:
    """Base of all."""

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        """Squares of the pieces involved."""
        return ()

    @property
    def favours(self) -> chess.Color | None:
        """The side that is happier about it, if one is."""
        return None
