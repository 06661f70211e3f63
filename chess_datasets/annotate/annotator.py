"""Annotates a position: asks the engine about it, then writes."""

import asyncio
from dataclasses import dataclass, field

from chess_datasets.annotate.compose import Annotation, Manner, compose
from chess_datasets.annotate.study import Effort, Engines, study
from commentary import Study
from rookery.errors import Unavailable
from rookery.prompt import mirrored_move, render
from rookery.trace import Position

_PATIENCE = 5
_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class Annotator:
    """Annotates positions. `effort` sets the searches of the engines, `style` and `manner` the text."""

    engines: Engines
    style: str = "fen"
    manner: Manner = field(default_factory=Manner)
    effort: Effort = field(default_factory=Effort)

    async def annotate(self, position: Position) -> Annotation | None:
        """The annotation of one position; None when no text about it passes the check. Raises `InvalidInput`
        if the position is broken or its game over, or there is no such style; `Unavailable` if no engine
        answers."""
        prompt = render(position, style=self.style)
        return compose(await self.study(position), prompt, self.manner, id_=position.id)

    async def study(self, position: Position) -> Study:
        """The engine's answers about the board that the prompt shows; a busy engine is asked again."""
        fen = render(position, style=self.style).fen
        last = position.last_moves[-1] if position.last_moves else None
        if last is not None and fen.split()[1] != position.fen.split()[1]:
            last = mirrored_move(last)
        for attempt in range(_PATIENCE):
            try:
                return await study(fen, self.engines, self.effort, last=last)
            except Unavailable as error:
                await asyncio.sleep(error.retry_after_s or _BACKOFF_S * 2**attempt)
        return await study(fen, self.engines, self.effort, last=last)
