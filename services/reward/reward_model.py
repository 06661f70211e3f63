"""The reward of a trained model, which another process serves: asks it how good moves are.

If the model does not answer, there is an error and no reward. The model sees the engine's board, on which
White is to move, in the prompt style that it was trained on. The answer it sees is the bare move, so that it
judges the move and not the text around it, and a position gets the same rewards as its mirror image.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import chess

from rookery.clients.reward_model import RewardModelClient
from rookery.errors import InvalidInput, PeerFault
from rookery.prompt import render
from rookery.trace import Message, Phase, Position
from services.reward.position import JudgedPosition


@dataclass(frozen=True, slots=True)
class ModelScores:
    """The model's rewards of moves, through a sigmoid: the probability that a move beats an ordinary answer.
    `sha256` is that of the model which answered."""

    sha256: str
    by_move: Mapping[chess.Move, float]


class RewardModel:
    """One served reward model. Call `identify` first: it asks the model for its identity and prompt style."""

    def __init__(self, client: RewardModelClient) -> None:
        self._client = client
        self._sha256 = ""
        self._style = ""
        self._why = "it was not asked yet"

    @property
    def sha256(self) -> str:
        """The model's identity. Raises `PeerFault` if the identity is not known, because the model has not
        answered yet."""
        if not self._sha256:
            raise PeerFault(f"the reward model does not answer: {self._why}")
        return self._sha256

    async def identify(self) -> str | None:
        """Asks for the model's identity and prompt style, unless they are known. Returns None if they are
        known now, else the reason why not."""
        if self._sha256:
            return None
        try:
            card = await self._client.card()
        except PeerFault as error:
            self._why = str(error)
            return self._why
        if not card.style:
            self._why = f"the model at {self._client.url} does not report the prompt style it was trained on"
            return self._why
        self._sha256, self._style = card.sha256, card.style
        return None

    async def scores(self, position: JudgedPosition, moves: Sequence[chess.Move]) -> ModelScores | PeerFault:
        """The model's scores of `moves`. Returns a PeerFault if it does not answer. The server may have
        loaded another model since `identify`, so callers must compare `sha256`."""
        try:
            answered = await self._client.rewards([self._chat(position, move) for move in moves])
        except PeerFault as error:
            return error
        if answered.sha256 != self._sha256:
            self._sha256 = ""  # so that `identify` asks again: the new model may have another prompt style
        rewards = zip(moves, map(_sigmoid, answered.rewards), strict=True)
        return ModelScores(answered.sha256, dict(rewards))

    async def close(self) -> None:
        await self._client.close()

    def _chat(self, position: JudgedPosition, move: chess.Move) -> list[Message]:
        prompted = Position(id="", fen=position.key, ply=0, phase=Phase.MIDDLEGAME, game_id="")
        try:
            prompt = render(prompted, style=self._style)
        except InvalidInput as error:
            raise PeerFault(f"the reward model at {self._client.url}: {error}") from error
        return [*prompt.messages, Message("assistant", f"\\boxed{{{position.to_engine(move)}}}")]


def _sigmoid(x: float) -> float:
    """The sigmoid of `x`, without overflow for large or small values."""
    if x < 0:
        return math.exp(max(x, -700.0)) / (1.0 + math.exp(max(x, -700.0)))
    return 1.0 / (1.0 + math.exp(-x))
