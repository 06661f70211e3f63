"""A policy behind an OpenAI-compatible endpoint as a player."""

import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

import chess
import chess.engine

from rookery.answers import after_reasoning
from rookery.chosen_move import chosen_move
from rookery.clients import InferenceClient
from rookery.engines.player import Reply
from rookery.errors import PeerFault
from rookery.games import position_of
from rookery.masking import mask_setting
from rookery.notation import MoveReading
from rookery.prompt import GAME_STYLES, LINES, STATE_TASK, render
from rookery.retries import retry
from rookery.rookworld import (
    PolicyAnswer,
    StateAnswer,
    from_pawns,
    parse_state_prompt,
    policy_answer,
    read_policy_answer,
    state_answer,
)
from rookery.rookworld_env import LEGAL_REWARD
from rookery.trace import Completion, Prompt, Sampling

_SERVED = frozenset({"name", "client", "model", "sampling", "source"})
"""The fields of a model that `describe` treats apart from its options."""

_PAUSES_S = (0.5, 1.0)
"""Pauses before a question that the endpoint has not answered is asked again."""


@dataclass(frozen=True)
class ModelPlayer:
    """Asks the model named `model` at the client's endpoint.

    `source` says what the endpoint serves, such as `run:runs/demo@42`. With it, `describe` leaves out the
    address, which changes whenever the model is served again. `thinking` None: as the chat template has it.
    `renamed` and `opening` are `fields` and `opening` of the client.
    """

    name: str
    client: InferenceClient
    model: str
    style: str
    sampling: Sampling
    source: str = ""
    thinking: bool | None = None
    renamed: Mapping[str, str] | None = None
    opening: str | None = None

    def describe(self) -> Mapping[str, object]:
        """See `Player.describe`. A field that is added here decides answers, so it is described too."""
        served = (
            {"source": self.source}
            if self.source
            else {"url": mask_setting(self.client.url), "model": self.model}
        )
        others = (field.name for field in fields(self) if field.name not in _SERVED)
        options = {name: value for name in others if (value := getattr(self, name)) is not None}
        return {"kind": "model", **served, **options, **asdict(self.sampling)}

    def at(self, temperature: float) -> "ModelPlayer":
        """The same player with another temperature. Both use one client: close one of them."""
        return replace(self, sampling=replace(self.sampling, temperature=temperature))

    async def play(self, board: chess.Board, *, seed: int) -> Reply:
        """The model's answer to the position of `board`. See `Player.play`.

        Raises:
            PeerFault: the endpoint did not answer, even after retries.
            InvalidInput: it refuses the request, for example because the prompt is too long.
            NotFound: it does not serve the model.
            SetupError: it refuses the key.
        """
        started = time.monotonic()
        prompt = render(position_of(board), style=self.style)
        (completion,) = await self.ask(prompt, count=1, seed=seed)
        reading, score = read_answer(completion, prompt, board)
        return Reply(
            move=reading.move,
            outcome=reading.outcome,
            text=completion.text,
            tokens=len(completion.token_ids),
            score=score,
            seconds=time.monotonic() - started,
        )

    async def ask(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        """`count` answers to a question about a position; number i has seed `seed + i`. Raises as `play`
        does."""
        return await self.complete(prompt, count=count, seed=seed)

    async def complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        """`count` completions of `prompt`; number i has seed `seed + i`. Raises as `play` does."""
        return await retry(
            lambda: self._complete(prompt, count=count, seed=seed), on=PeerFault, pauses_s=_PAUSES_S
        )

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        generation = await self.client.complete(
            prompt,
            model=self.model,
            count=count,
            sampling=self.sampling,
            seed=seed,
            tokens=await self.client.tells_tokens(),
            thinking=self.thinking,
        )
        return generation.completions

    async def prompt_tokens(self, prompt: Prompt) -> tuple[int, ...]:
        """The prompt as the server tokenises it, which must be vLLM. Raises as `play` does."""
        generation = await retry(
            lambda: self.client.complete(
                prompt,
                model=self.model,
                count=1,
                sampling=Sampling(max_tokens=1),
                seed=0,
                thinking=self.thinking,
            ),
            on=PeerFault,
            pauses_s=_PAUSES_S,
        )
        return generation.prompt_token_ids

    async def close(self) -> None:
        await self.client.close()


GUESS = "well-formed guess"
_GUESSED_MOVES = 5


class GuessingPlayer(ModelPlayer):
    """A reference for RookWorld's lines: the right format with random content. It calls no model.

    Its `P:` line names five random legal moves with equal evaluations. Its `A:` line repeats the board of
    the question.
    """

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        return tuple(Completion(_guess(prompt, n), (), (), "stop", n) for n in range(seed, seed + count))


def _guess(prompt: Prompt, seed: int) -> str:
    question = prompt.messages[0].content
    if question.startswith(f"{STATE_TASK}:"):
        fen, _, _ = parse_state_prompt(question)
        return state_answer(StateAnswer(fen, LEGAL_REWARD, terminated=False, truncated=False))
    legal = sorted(move.uci() for move in chess.Board(prompt.fen).legal_moves)
    moves = random.Random(seed).sample(legal, min(_GUESSED_MOVES, len(legal)))
    return policy_answer(PolicyAnswer(tuple(moves), (0.0,) * len(moves), moves[0]))


def read_answer(
    completion: Completion, prompt: Prompt, board: chess.Board
) -> tuple[MoveReading, chess.engine.PovScore | None]:
    """The move that `completion` chooses on `board`, and its evaluation if the completion is a `P:` line."""
    score = None
    if prompt.style in LINES.difference(GAME_STYLES) and (
        line := read_policy_answer(after_reasoning(completion.text))
    ):
        score = _score(dict(zip(line.moves, line.evals, strict=True)).get(line.best), board.turn)
    return chosen_move(completion.text, prompt, board, truncated=completion.truncated), score


def _score(pawns: float | None, turn: chess.Color) -> chess.engine.PovScore | None:
    if pawns is None:
        return None
    evaluation = from_pawns(pawns)
    relative: chess.engine.Score = (
        chess.engine.Cp(evaluation.cp)
        if evaluation.cp is not None
        else chess.engine.Mate(evaluation.mate or 0)
    )
    return chess.engine.PovScore(relative, turn)
