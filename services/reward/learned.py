"""The learned reward: what a reward model, served elsewhere, thinks of moves. Never a guess where it is away.

It is shown the engine's board, on which White moves, in the prompt style it was trained on, and the bare
move as the answer: so it judges moves and not manners, and a mirrored position is the same question.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import chess

from rookery.clients.reward_model import RewardModelClient
from rookery.errors import InvalidInput, PeerFault
from rookery.prompt import render
from rookery.trace import Message, Phase
from rookery.trace import Position as Shown
from services.reward.position import Position


@dataclass(frozen=True, slots=True)
class Opinion:
    """The model's probability that each move is better than an ordinary answer: sigmoid of its reward."""

    sha256: str
    of: Mapping[chess.Move, float]


class LearnedReward:
    """One reward model. It is known once it has answered; until then there are no rewards by it."""

    def __init__(self, client: RewardModelClient) -> None:
        self._client = client
        self._sha256 = ""
        self._style = ""
        self._why = "it was not asked yet"

    @property
    def sha256(self) -> str:
        """The model's identity.

        Raises:
            PeerFault: it is not known yet.
        """
        if not self._sha256:
            raise PeerFault(f"the reward model does not answer: {self._why}")
        return self._sha256

    async def meet(self) -> str | None:
        """Gets to know the model if it is not known; None then, else why not."""
        if self._sha256:
            return None
        try:
            card = await self._client.card()
        except PeerFault as error:
            self._why = str(error)
            return self._why
        if not card.style:
            self._why = f"the model at {self._client.url} does not say on which prompts it was trained"
            return self._why
        self._sha256, self._style = card.sha256, card.style
        return None

    async def opinion(self, position: Position, moves: Sequence[chess.Move]) -> Opinion | PeerFault:
        """What it thinks of `moves`; the fault where it is away.

        It may be another model than the one that was known when the question was read: look at its `sha256`.
        """
        try:
            answered = await self._client.rewards([self._chat(position, move) for move in moves])
        except PeerFault as error:
            return error
        if answered.sha256 != self._sha256:
            self._sha256 = ""  # to be met again, its prompt style may be another
        rewards = zip(moves, map(_sigmoid, answered.rewards), strict=True)
        return Opinion(answered.sha256, dict(rewards))

    async def close(self) -> None:
        await self._client.close()

    def _chat(self, position: Position, move: chess.Move) -> list[Message]:
        shown = Shown(id="", fen=position.key, ply=0, phase=Phase.MIDDLEGAME, game_id="")
        try:
            prompt = render(shown, style=self._style)
        except InvalidInput as error:
            raise PeerFault(f"the reward model at {self._client.url}: {error}") from error
        return [*prompt.messages, Message("assistant", f"\\boxed{{{position.to_engine(move)}}}")]


def _sigmoid(x: float) -> float:
    """Without overflow at either end."""
    if x < 0:
        return math.exp(max(x, -700.0)) / (1.0 + math.exp(max(x, -700.0)))
    return 1.0 / (1.0 + math.exp(-x))
