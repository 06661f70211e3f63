"""A model that answers several times and gives one of the answers: test-time compute."""

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import chess

from arena.players.model import ModelPlayer, read_answer
from rookery.errors import InvalidInput
from rookery.trace import Completion, Outcome, Prompt

Rule = Literal["vote", "verify", "best-of"]


@dataclass(frozen=True)
class SelectingPlayer(ModelPlayer):
    """Samples `answers` answers to each question and gives the one that `rule` selects.

    Its tokens are those of all answers.

    `vote`: the first with the move that most of the legal ones choose (self-consistency, arXiv 2203.11171).
    `verify`: the first with a legal move. `best-of`: the one with the highest mean log-probability of its
    tokens. If no answer has a legal move, `vote` and `verify` give the first one.
    """

    rule: Rule = "vote"
    answers: int = 2

    def at(self, temperature: float) -> "SelectingPlayer":
        """The same player: its answers are sampled at its own temperature."""
        return self

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        seeds = range(seed, seed + count * self.answers, self.answers)
        return tuple(await asyncio.gather(*(self._selected(prompt, seed=first) for first in seeds)))

    async def _selected(self, prompt: Prompt, *, seed: int) -> Completion:
        sampled = await super()._complete(prompt, count=self.answers, seed=seed)
        tokens = tuple(token for completion in sampled for token in completion.token_ids)
        return replace(self._select(sampled, prompt), token_ids=tokens)

    def _select(self, sampled: tuple[Completion, ...], prompt: Prompt) -> Completion:
        if self.rule == "best-of":
            if not all(completion.logprobs for completion in sampled):
                raise InvalidInput(f"{self.client.url} tells no log-probabilities, which best-of= needs")
            return max(sampled, key=lambda completion: fmean(completion.logprobs))
        readings = [read_answer(completion, prompt, chess.Board(prompt.fen))[0] for completion in sampled]
        moves = [r.move for r in readings if r.outcome is Outcome.LEGAL]
        if not moves:
            return sampled[0]
        move = Counter(moves).most_common(1)[0][0] if self.rule == "vote" else moves[0]
        return next(c for c, reading in zip(sampled, readings, strict=True) if reading.move == move)
