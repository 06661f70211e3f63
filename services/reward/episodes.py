"""`POST /v1/episodes`: the environments of `rookery.episodes` for trainers with a loop of their own.

Nothing is kept between requests. An answer has the episode so far, which the caller sends back with the next
response: what was judged and played before is taken from there, so only the new turn is.
"""

import asyncio
import json
import math
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Self

import chess
import chess.engine
from pydantic import BaseModel, Field, StrictBool, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from rookery.engines.player import FULL_SKILL
from rookery.episodes import (
    CONTEXT_LIMIT,
    Environment,
    Opponent,
    book_of,
    environment,
    faults_of,
    opponent_of,
)
from rookery.errors import InvalidInput, validation_message
from rookery.fen import read_fen
from rookery.games import position_of
from rookery.middleware import StrictBody
from rookery.openings import read_openings
from rookery.prompt import StyleName, task_of
from rookery.trace import Completion, Message, Position, Prompt, ScoreItem, Turn, Verdict
from services.reward.scorer import Scorer

MAX_TURNS, MAX_MOVES = 300, 600
"""The most turns of an episode, and moves before it. Each request plays the turns again."""
MAX_NODES, MAX_DEPTH = 1_000_000, 20
"""The most that Stockfish may search for a move of a game."""

_CUT = CONTEXT_LIMIT.replace("_", " ")
"""How the observation ends of a turn with which an episode was cut."""

Uci = Annotated[str, Field(pattern="^[a-h][1-8][a-h][1-8][qrbn]?$")]


class PlayedTurn(StrictBody):
    """A turn, as the service answered it."""

    response: str
    truncated: StrictBool = False
    """The response was cut at its token limit."""
    verdict: Verdict | None = None
    """Null if it gave no answer, as a call of a tool."""
    observation: str = ""
    """What the environment said after it, such as the opponent's move."""
    rewards: dict[str, float] = Field(default={}, max_length=100)
    """What it paid for it besides the verdict."""

    @property
    def turn(self) -> Turn:
        completion = Completion(self.response, (), (), "length" if self.truncated else "stop", 0)
        return Turn(completion, self.verdict, observation=self.observation, rewards=self.rewards)

    @model_validator(mode="after")
    def _has_a_reward(self) -> Self:
        if not math.isfinite(self.turn.reward):
            raise ValueError(f"the reward {self.turn.reward}")
        return self


class Episode(StrictBody):
    """An episode: how it begins, and its turns."""

    episode: str = Field(default="move", max_length=500)
    """A kind with its options, such as `game,opponent=stockfish,nodes=100,history=growing`."""
    fen: str = Field(default="", max_length=128)
    """The position that it begins with. Games with `start=book` have none."""
    last_moves: list[Uci] = Field(default=[], max_length=MAX_MOVES)
    """The moves before it, oldest first, for styles that show them."""
    style: StyleName = "fen"
    scheme: str = Field(default="", max_length=1000)
    """The scheme of the verdicts. Empty: the default."""
    seed: int = Field(default=0, ge=0, lt=1 << 48)
    """Of openings, and, with the slot, of the opponent's random moves."""
    slot: int = Field(default=0, ge=0, lt=1 << 16)
    """The episode's number in its group: with `colours=both`, odd ones play the other colour."""
    first: str = Field(default="", max_length=128)
    """The FEN of the first prompt."""
    turns: list[PlayedTurn] = Field(default=[], max_length=MAX_TURNS)


class EpisodeRequest(Episode):
    """An episode, and what is next: nothing, which gives the last prompt, the next response, or its end."""

    response: str | None = None
    """The answer to the last prompt."""
    truncated: StrictBool = False
    cut: StrictBool = False
    """End the episode after its last turn, as its next prompt does not fit the model's context."""


class EpisodeState(BaseModel):
    """The episode with the new turn, and what it asks next."""

    episode: Episode
    """To be sent back with the next `response`."""
    prompt: list[Message] | None
    """The whole conversation; null at the end."""
    tools: list[dict[str, Any]]
    """The schemas of the tools, for the chat template. Empty unless the episode has `calls=template`."""
    fen: str
    """The position of the prompt, or the last one that was shown."""
    observation: str
    """What the environment said after the last turn: at the end of a game, how it ended."""
    reward: float
    """What the request earned: the sum over an episode is its reward."""
    done: bool

    def json_text(self) -> str:
        """The state as JSON. Raises `InvalidInput` if a text in it is no Unicode."""
        try:
            return self.model_dump_json()
        except PydanticSerializationError as error:
            raise InvalidInput(f"episode {self.episode.episode!r}: {error}") from error


async def next_state(request: EpisodeRequest, scorer: Scorer) -> EpisodeState:
    """Plays the next turn. Raises `InvalidInput` if there is no such episode, it is over, or its turns cannot
    have been played; `Unavailable` if an engine failed."""
    played = _Played(request, scorer)
    first, turns, reward = await played.begin(), list(request.turns), 0.0
    for number, turn in enumerate(turns):
        await asyncio.sleep(0)  # other requests come in between
        await played.step(turn, place=f"turns.{number}")
    if request.response is not None:
        turns.append(PlayedTurn(response=request.response, truncated=request.truncated))
        turns[-1] = await played.step(turns[-1], place="response", new=True)
        reward = turns[-1].turn.reward
    elif request.cut:
        if not turns:
            raise InvalidInput("cut: no turn was taken")
        before, turns[-1] = turns[-1], await played.cut(turns[-1])
        reward = turns[-1].turn.reward - before.turn.reward
    if len(turns) > MAX_TURNS:
        raise InvalidInput(f"episode {request.episode!r} has more than {MAX_TURNS} turns")
    fields = {name: getattr(request, name) for name in Episode.model_fields}
    try:
        episode = Episode(**fields | {"first": first, "turns": turns})
    except ValidationError as error:  # its options add up to an infinite reward
        message = validation_message(error.errors(include_url=False, include_input=False)[:1])
        raise InvalidInput(f"episode {request.episode!r}: {message}") from error
    return EpisodeState(
        episode=episode,
        prompt=list(played.prompt.messages) if played.prompt else None,
        tools=json.loads(played.prompt.tools) if played.prompt and played.prompt.tools else [],
        fen=played.fen,
        observation=turns[-1].observation if turns else "",
        reward=reward,
        done=played.prompt is None,
    )


class _Played:
    """The environment of an episode, up to its last turn. `prompt` is the next one, `fen` that of the last
    one."""

    def __init__(self, request: Episode, scorer: Scorer) -> None:
        self._request, self._scorer = request, scorer
        self._opponents = _Stockfish(scorer)
        self._environment = _environment(request, self._opponents)
        self._position = _position(request)
        self.prompt: Prompt | None = None
        self.fen = ""

    async def begin(self) -> str:
        """Returns the FEN of the first prompt."""
        request, environment = self._request, self._environment
        with faults_of(self._position):
            seed = request.seed + request.slot
            start = environment.reset(self._position, style=request.style, seed=seed, judge=self._judge)
            played = replace(start, fen=request.first) if request.first else None
            self.prompt = await environment.begin(played) or start
        self.fen = self.prompt.fen
        return self.fen

    async def step(self, turn: PlayedTurn, *, place: str, new: bool = False) -> PlayedTurn:
        """The turn, with what came of it if it is new."""
        if self.prompt is None:
            raise InvalidInput(f"{place}: the episode is over")
        if new and self._environment.answers(turn.response):
            turn = turn.model_copy(update={"verdict": await self._verdict(turn)})
        self._opponents.replayed = "" if new else place
        with faults_of(self._position):
            step = await self._environment.step(turn.turn)
        self.prompt = None if turn.observation.endswith(_CUT) else step.prompt
        self.fen = step.prompt.fen if step.prompt else self.fen
        return turn.model_copy(update={"observation": step.observation, "rewards": dict(step.rewards)})

    async def cut(self, turn: PlayedTurn) -> PlayedTurn:
        """The last turn, with which the episode ends. If it is no answer, it is judged as a cut one."""
        if self.prompt is None:
            raise InvalidInput("cut: the episode is over")
        self.prompt = None
        with faults_of(self._position):
            step = self._environment.cut(turn.turn)
        if turn.verdict is None:
            turn = turn.model_copy(update={"truncated": True})
            turn = turn.model_copy(update={"verdict": await self._verdict(turn)})
        return turn.model_copy(update={"observation": step.observation, "rewards": dict(step.rewards)})

    async def _verdict(self, turn: PlayedTurn) -> Verdict:
        task = task_of(self._position, style=self._request.style)
        scheme = self._request.scheme
        item = ScoreItem(self.fen, turn.response, task=task, scheme=scheme, truncated=turn.truncated)
        return await self._scorer.score(item)

    async def _judge(self, fen: str, response: str) -> Verdict:
        return await self._scorer.score(ScoreItem(fen, response))


def _environment(request: Episode, opponents: "_Stockfish") -> Environment:
    if opponent := opponent_of(request.episode):
        if opponent.kind not in ("random", "engine", "stockfish"):
            raise InvalidInput(
                f"episode {request.episode!r}: opponent={opponent.kind} plays in rollouts alone: here, "
                "random, engine and stockfish do"
            )
        for name, value, most in (
            ("nodes", opponent.nodes, MAX_NODES),
            ("depth", opponent.depth, MAX_DEPTH),
        ):
            if value and value > most:
                raise InvalidInput(f"episode {request.episode!r}: {name}={value} is more than {most}")
    return environment(request.episode, opponents=opponents, slot=request.slot)


def _position(request: Episode) -> Position:
    book = book_of(request.episode)
    if book not in ("", "book"):
        raise InvalidInput(f"episode {request.episode!r}: only the feed of a run reads files of openings")
    if bool(book) == bool(request.fen):
        raise InvalidInput(f"fen {request.fen!r}: games with start=book have none, other episodes have one")
    if book:
        board = random.Random(f"{request.seed}:opening").choice(_book()).board()
        return replace(position_of(board), episode=request.episode)
    board = read_fen(request.fen)
    if board.is_game_over():
        raise InvalidInput(f"the game is over: {board.fen()!r}")
    return replace(position_of(board), episode=request.episode, last_moves=tuple(request.last_moves))


_book = cache(read_openings)


@dataclass
class _Stockfish:
    """Plays the other side of games. See `rookery.episodes.Opponents`."""

    scorer: Scorer
    replayed: str = ""
    """The place of the turn that is played again, if one is: its observation names the opponent's move."""

    async def move(
        self, opponent: Opponent, position: Position, board: chess.Board, *, style: str, seed: int
    ) -> chess.Move | None:
        if self.replayed:
            raise InvalidInput(f"{self.replayed}: the observation names no move of the opponent")
        limit = chess.engine.Limit(nodes=opponent.nodes, depth=opponent.depth)
        skill, elo = opponent.skill, opponent.elo
        # All of them: the process keeps those of its last move.
        options: dict[str, chess.engine.ConfigValue] = {
            "Skill Level": FULL_SKILL if skill is None else skill,
            "UCI_LimitStrength": elo is not None,
            **({} if elo is None else {"UCI_Elo": elo}),
        }
        return await self.scorer.reply(board, limit=limit, options=options)
