"""Environments: what a policy does with a position, turn by turn, until the episode is over.

    move        answers once
    tools       may see the board, the legal moves, the board after a line, the engine's move; then answers
    game        plays on against an opponent, to the end of the game or a limit

A text such as `game,opponent=engine,plies=40` names one with its options, and `0.7*move + 0.3*tools` a mix.
Other packages add their own under the entry point group `rookery.episodes`. An environment keeps the state of
one episode, which the turns that were played determine.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

import chess
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    ValidationError,
)

from rookery.errors import InvalidInput, validation_message
from rookery.games import ILLEGAL_MOVE, SCORES, Rules, game_end, random_move
from rookery.prompt import mirrored_move, render
from rookery.trace import Evaluation, Message, Position, Prompt, Turn, Verdict

MOVE = "move"

Judge = Callable[[str, str], Awaitable[Verdict]]
"""The verdict on an answer to a FEN."""


@dataclass(frozen=True, slots=True)
class Step:
    """What came of a turn: what the environment says and pays, and the next prompt, or None at the end."""

    observation: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict)
    prompt: Prompt | None = None


class Environment(BaseModel, ABC, extra="forbid"):
    """One episode. Its fields are the options of its kind."""

    _position: Position = PrivateAttr()
    _prompt: Prompt = PrivateAttr()
    _style: str = PrivateAttr()
    _seed: int = PrivateAttr()
    _judge: Judge = PrivateAttr()

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        """Begins an episode and returns its first prompt, which does not depend on the seed: a group has one.
        Raises `InvalidInput` if the position cannot be rendered in this style."""
        self._position, self._style, self._seed, self._judge = position, style, seed, judge
        self._prompt = render(position, style=style)
        return self._prompt

    def answers(self, text: str) -> bool:
        """Whether a completion is an answer, which gets a verdict."""
        return True

    @abstractmethod
    async def step(self, turn: Turn) -> Step:
        """Takes a turn to the last prompt. A turn with an observation was played before: the step is the same
        as then."""


class _Move(Environment):
    async def step(self, turn: Turn) -> Step:
        del turn
        return Step()


class _Game(Environment):
    opponent: Literal["random", "engine"] = "random"
    """Who plays the other side: random moves, or the engine of the reward service with its nodes."""
    blunders: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the engine's moves that are random instead."""
    plies: PositiveInt = 80
    """Moves of both sides, after which the game is a draw."""
    history: Literal["afresh", "growing"] = "afresh"
    """Show each position as the first one, or in a conversation that grows."""
    result: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    """What a won game pays with its last turn; a draw pays half of it."""
    win_cp: PositiveInt = 1300
    """A side has won that led by so much after three moves of the policy in a row. From ply 80 of the game
    on, it is a draw if neither led by more than 10 after three of them."""
    _board: chess.Board = PrivateAttr()
    _played: list[str] = PrivateAttr(default_factory=list)
    _scores: list[Evaluation] = PrivateAttr(default_factory=list)

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        self._board = chess.Board(position.fen)
        return super().reset(position, style=style, seed=seed, judge=judge)

    async def step(self, turn: Turn) -> Step:
        board, side = self._board, self._board.turn
        mirrored = chess.Board(self._prompt.fen).turn != side
        if turn.verdict is None or turn.verdict.move is None:
            return self._end("", "0-1" if side else "1-0", ILLEGAL_MOVE, side=side)
        uci = turn.verdict.move.uci
        self._push(mirrored_move(uci) if mirrored else uci)
        if score := turn.verdict.eval_after:
            self._scores.append(score if side else Evaluation(_negative(score.cp), _negative(score.mate)))
        if end := self._ended():
            return self._end("", *end, side=side)
        played, _, _ = turn.observation.partition(":")
        reply = board.parse_san(played) if played else await self._reply()
        san = written = board.san(reply)
        if mirrored:
            written = board.mirror().san(chess.Move.from_uci(mirrored_move(reply.uci())))
        self._push(reply.uci())
        if end := self._ended():
            return self._end(san, *end, side=side)
        position = replace(
            self._position,
            fen=board.fen(),
            ply=board.ply(),
            last_moves=(*self._position.last_moves, *self._played),
        )
        prompt = render(position, style=self._style)
        if self.history == "growing":
            question = prompt.messages[-1]
            prompt = replace(
                prompt,
                messages=(
                    *self._prompt.messages,
                    Message("assistant", turn.completion.text),
                    replace(question, content=f"Your opponent played {written}.\n{question.content}"),
                ),
            )
        self._prompt = prompt
        return Step(san, prompt=prompt)

    def _push(self, uci: str) -> None:
        self._board.push_uci(uci)
        self._played.append(uci)

    def _ended(self) -> tuple[str, str] | None:
        rules = Rules(max_plies=self.plies, win_cp=self.win_cp, adjudicate_plies=3)
        return game_end(self._board, rules, scores=self._scores)

    def _end(self, san: str, result: str, termination: str, *, side: chess.Color) -> Step:
        score = SCORES[result] if side else 1.0 - SCORES[result]
        return Step(f"{san}: {result}, {termination.replace('_', ' ')}", {"result": self.result * score})

    async def _reply(self) -> chess.Move:
        rng = random.Random(f"{self._seed}:{len(self._played)}")
        if self.opponent == "random" or rng.random() < self.blunders:
            return random_move(self._board, seed=rng.getrandbits(31))
        return chess.Move.from_uci((await _engine_move(self._board, self._judge))[0].uci())


class _Tools(Environment):
    turns: PositiveInt = 4
    """The last of so many turns is the answer, whatever it says."""
    searches: NonNegativeInt = 1
    """How often the engine may be called."""
    price: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """What each call costs."""
    search_price: float = Field(default=0.1, ge=0.0, allow_inf_nan=False)
    """What a call of the engine costs besides."""
    _turns_taken: int = PrivateAttr(default=0)
    _searches: int = PrivateAttr(default=0)

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        prompt = super().reset(position, style=style, seed=seed, judge=judge)
        *before, question = prompt.messages
        question = replace(question, content=f"{question.content}\n{_TOOLS.format(turns=self.turns - 1)}")
        self._prompt = replace(prompt, messages=(*before, question))
        return self._prompt

    def answers(self, text: str) -> bool:
        return self._turns_taken + 1 >= self.turns or not _tool_call(text)

    async def step(self, turn: Turn) -> Step:
        self._turns_taken += 1
        call = _tool_call(turn.completion.text)
        if turn.verdict is not None or call is None:
            return Step()
        name, words = call
        cost = self.price
        if name == "engine" and self._searches < self.searches:
            self._searches += 1
            cost += self.search_price
            output = turn.observation or await self._engine()
        else:
            output = self._output(name, words)
        self._prompt = replace(
            self._prompt,
            messages=(
                *self._prompt.messages,
                Message("assistant", turn.completion.text),
                Message("user", output),
            ),
        )
        return Step(output, {"calls": -cost} if cost else {}, self._prompt)

    async def _engine(self) -> str:
        board = chess.Board(self._prompt.fen)
        best, win = await _engine_move(board, self._judge)
        return f"Best move: {board.san(best)} ({best.uci()}), win probability {win:.2f}"

    def _output(self, name: str, words: list[str]) -> str:
        board = chess.Board(self._prompt.fen)
        match name, words:
            case "board", []:
                return _board_text(board)
            case "legal_moves", []:
                return "Legal moves: " + " ".join(sorted(map(board.san, board.legal_moves)))
            case "after", [_, *_]:
                for word in words:
                    try:
                        move = board.parse_san(word)
                    except ValueError:
                        move = chess.Move.null()
                    if not move:  # python-chess reads `--` as a null move
                        return f"{word[:20]!r} is not a legal move in {board.fen()}"
                    board.push(move)
                return _board_text(board)
            case "engine", _:
                return f"No more than {self.searches} calls of engine"
        return f"No tool {' '.join([name, *words])[:40]!r}: board, legal_moves, after MOVE ..., engine"


_TOOLS = (
    "Before you answer, you may write one call, up to {turns} times, and wait: <tool>board</tool>, "
    "<tool>legal_moves</tool>, <tool>after MOVE ...</tool> for the board after moves, <tool>engine</tool> "
    "for the best move, which has a price."
)
_CALL = re.compile(r"<tool>\s*(\w{1,20})([^<\\]{0,200})</tool>")


def _tool_call(text: str) -> tuple[str, list[str]] | None:
    """The last call in a text that does not answer after it: the tool's name, and the words after it."""
    *_, last = None, *_CALL.finditer(text)
    if last is None or r"\boxed" in text[last.end() :]:
        return None
    return last[1], last[2].replace("(", " ").replace(")", " ").replace(",", " ").split()


def _board_text(board: chess.Board) -> str:
    return f"{board}\n{'White' if board.turn else 'Black'} to move. FEN: {board.fen()}"


async def _engine_move(board: chess.Board, judge: Judge) -> tuple[chess.Move, float]:
    """The engine's best move, and the win probability after it."""
    verdict = await judge(board.fen(), f"\\boxed{{{next(iter(board.legal_moves)).uci()}}}")
    if verdict.best is None or verdict.win_before is None:
        raise InvalidInput(f"the reward service names no best move in {board.fen()!r}")
    return chess.Move.from_uci(verdict.best.uci), verdict.win_before


def _negative(number: int | None) -> int | None:
    return None if number is None else -number


@cache
def _kinds() -> Mapping[str, Callable[..., Environment]]:
    built_in: dict[str, Callable[..., Environment]] = {MOVE: _Move, "tools": _Tools, "game": _Game}
    return {point.name: point.load() for point in entry_points(group="rookery.episodes")} | built_in


def environment(spec: str) -> Environment:
    """A new environment as `spec` describes it; empty means `move`. Raises `InvalidInput` if there is no such
    kind or option."""
    kind, *options = (part.strip() for part in (spec or MOVE).split(","))
    if kind not in _kinds():
        raise InvalidInput(f"episode {spec[:80]!r}: no kind {kind[:20]!r}: choose from {', '.join(_kinds())}")
    values: dict[str, Any] = dict(option.partition("=")[::2] for option in options)
    try:
        return _kinds()[kind](**values)
    except ValidationError as error:
        why = validation_message(error.errors(include_url=False)[:1], root=kind)
        raise InvalidInput(f"episode {spec[:80]!r}: {why}") from error


def parse_mix(text: str) -> list[tuple[float, str]]:
    """The shares of a mix, which add up to 1, and what each is for. Raises `InvalidInput` for a wrong one.

    >>> parse_mix("3*move + game,plies=40")
    [(0.75, 'move'), (0.25, 'game,plies=40')]
    """
    parts = [part.strip() for part in text.split("+")]
    weighed = [(weight or "1", spec) for weight, _, spec in (p.rpartition("*") for p in parts)]
    try:
        shares = [float(weight) for weight, _ in weighed]
    except ValueError as error:
        raise InvalidInput(f"episodes {text[:80]!r}: {error}") from error
    if not all(0.0 < share < 1e9 for share in shares):
        raise InvalidInput(f"episodes {text[:80]!r}: shares must be greater than 0")
    for _, spec in weighed:
        environment(spec)
    return [(share / sum(shares), spec.strip()) for share, (_, spec) in zip(shares, weighed, strict=True)]


def drawn(mix: list[tuple[float, str]], *, seed: int, position: Position) -> Position:
    """The position with an episode of the mix, which depends only on the seed and the position."""
    shares, specs = zip(*mix, strict=True)
    (spec,) = random.Random(f"{seed}:{position.id}:episode").choices(specs, shares)
    return replace(position, episode="" if spec == MOVE else spec)


def _check_mix(text: str) -> str:
    try:
        parse_mix(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    return text


EpisodeMix = Annotated[str, AfterValidator(_check_mix)]
"""A mix of episodes in settings."""
