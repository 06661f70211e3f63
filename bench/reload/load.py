"""Rollouts in flight: callers that ask for groups of the newest version without a pause."""

import asyncio
import time
from dataclasses import dataclass, field

import chess

from rookery.clients import InferenceClient
from rookery.errors import RookeryError
from rookery.prompt import render
from rookery.trace import Phase, Position, Sampling


@dataclass
class Load:
    """`callers` requests at a time, each for `group` completions; remembers how each one went."""

    client: InferenceClient
    callers: int
    group: int
    max_tokens: int
    model: str
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        """Asks until stopped; every request in flight is answered."""
        await asyncio.gather(*(self._ask(stop, caller) for caller in range(self.callers)))

    async def _ask(self, stop: asyncio.Event, caller: int) -> None:
        sampling = Sampling(temperature=1.0, max_tokens=self.max_tokens)
        board, round_number = chess.Board(), 0
        while not stop.is_set():
            _move_on(board, caller + round_number)
            position = Position("bench", board.fen(), board.ply(), Phase.MIDDLEGAME, "bench")
            prompt = render(position, style="mover-squares")
            started = time.perf_counter()
            try:
                answer = await self.client.complete(
                    prompt, model=self.model, count=self.group, sampling=sampling, seed=round_number
                )
                tokens = sum(len(completion.token_ids) for completion in answer.completions)
                self.spans.append((started, time.perf_counter(), tokens))
            except RookeryError as error:
                self.failures.append(str(error))
            round_number += 1


def _move_on(board: chess.Board, choice: int) -> None:
    moves = list(board.legal_moves)
    if not moves or board.ply() > 80:
        board.reset()
        moves = list(board.legal_moves)
    board.push(moves[choice % len(moves)])
