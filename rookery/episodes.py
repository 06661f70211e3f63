"""Environments: what a policy does with a position, turn by turn, until the episode is over.

    move        answers once
    tools       may see the board, the legal moves, the board after a line, the engine's move; then answers
    game        plays on against an opponent or itself, to the end of the game or a limit

A text such as `game,opponent=engine,plies=40` names one with its options, and `0.7*move + 0.3*tools` a mix.
Other packages add their own under the entry point group `rookery.episodes`. An environment keeps the state of
one episode, which the turns that were played determine.
"""

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Protocol, Self

import chess
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from rookery.errors import InvalidInput, RookeryError, validation_message
from rookery.games import SCORES, GameState, Rules, random_move
from rookery.prompt import LINES, mirrored_move, render
from rookery.tool_calls import JSON_NOTE, SCHEMAS, TAGS_NOTE, ToolCall, json_call, tag_call
from rookery.trace import Completion, Evaluation, Message, Position, Prompt, Turn, Verdict

MOVE, TOOLS = "move", "tools"

CONTEXT_LIMIT = "context_limit"
"""Termination of a game whose next prompt would not fit the model's context, beside those of `games`."""

Judge = Callable[[str, str], Awaitable[Verdict]]
"""The verdict on an answer to a FEN."""


@dataclass(frozen=True)
class Opponent:
    """An engine with its limits, or a version of the policy: the newest one of at most that of the game's
    first turn whose number is a multiple of `every`. `kind` is `stockfish`, `uci` or `policy`."""

    kind: str
    path: str = ""
    nodes: int | None = None
    depth: int | None = None
    skill: int | None = None
    elo: int | None = None
    every: int = 25


class Opponents(Protocol):
    """Plays the other side of games."""

    async def move(
        self, opponent: Opponent, position: Position, board: chess.Board, *, style: str, seed: int
    ) -> chess.Move | None:
        """The move of an opponent on `board`, whose position has the moves before it. None if it gives no
        legal one, as a model may."""


@dataclass(frozen=True, slots=True)
class EnvironmentStep:
    """What came of a turn: what the environment says and pays, and the next prompt, or None at the end."""

    observation: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict)
    prompt: Prompt | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    """At the end, what the last turn of another role gets besides."""


_render = lru_cache(maxsize=64)(render)
"""The environments of a group ask for the same prompt one after the other."""


class Environment(BaseModel, ABC, extra="forbid"):
    """One episode. Its fields are the options of its kind."""

    _position: Position = PrivateAttr()
    _prompt: Prompt = PrivateAttr()
    _style: str = PrivateAttr()
    _seed: int = PrivateAttr()
    _judge: Judge = PrivateAttr()
    _opponents: Opponents | None = PrivateAttr(default=None)
    _slot: int = PrivateAttr(default=0)

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        """Begins an episode and returns its first prompt, which does not depend on the seed: a group has one.
        Raises `InvalidInput` if the position cannot be rendered in this style."""
        self._position, self._style, self._seed, self._judge = position, style, seed, judge
        self._prompt = _render(position, style=style)
        return self._prompt

    async def begin(self, played: Prompt | None = None) -> Prompt | None:
        """The first prompt of an episode that does not begin with that of its group, or else None. `played`
        is the one that it began with before: it is the same."""
        return None

    @property
    def role(self) -> str:
        """Whose turn it is, if turns may be those of different players."""
        return ""

    def answers(self, text: str) -> bool:
        """Whether a completion is an answer, which gets a verdict."""
        return True

    @abstractmethod
    async def step(self, turn: Turn) -> EnvironmentStep:
        """Takes a turn to the last prompt. A turn with an observation was played before: the step is the same
        as then."""

    def cut(self, turn: Turn) -> EnvironmentStep:
        """Ends the episode after `turn`, the last that was taken, because the next prompt leaves no room for
        an answer in the model's context."""
        return EnvironmentStep(f"{turn.observation}: {CONTEXT_LIMIT.replace('_', ' ')}", turn.rewards)


class _Move(Environment):
    async def step(self, turn: Turn) -> EnvironmentStep:
        del turn
        return EnvironmentStep()


_LIMITS = ("nodes", "depth")
_OPPONENTS = {
    "random": (),
    "engine": (),
    "stockfish": (*_LIMITS, "skill", "elo"),
    "uci": _LIMITS,
    "policy": ("every",),
    "self": (),
}
"""The opponents of a game, with the options that they alone have."""


class _Game(Environment):
    opponent: str = "random"
    """Who plays the other side: random moves; the engine of the reward service, with its nodes; `stockfish`,
    or any engine as `uci:PATH`, with limits of their own; `policy`, an earlier version; or the policy, as
    `self`, which then learns from the turns of both sides."""
    nodes: PositiveInt | None = None
    depth: PositiveInt | None = None
    """Of stockfish and uci:PATH: what an engine searches for a move."""
    skill: Annotated[int, Field(ge=0, le=20)] | None = None
    elo: PositiveInt | None = None
    """Of stockfish, which then draws its moves by the clock: a game that is played again differs."""
    every: PositiveInt | None = None
    """Of policy: its opponent is the newest version whose number is a multiple of this. Default: 25."""
    blunders: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the opponent's moves that are random instead."""
    colours: Literal["mover", "both"] = "mover"
    """Play the side to move, or in every second game of a group the other one."""
    start: str = "position"
    """Where games begin: at the feed's `position`, or after an opening that the feed draws from the built-in
    `book`, or from a file of openings, by its path."""
    plies: PositiveInt = 80
    """Moves of both sides, after which the game is a draw."""
    history: Literal["afresh", "growing"] = "afresh"
    """Show each position as the first one, or in a conversation that grows."""
    result: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    """What a won game pays with its last turn; a draw pays half of it."""
    moves_to_mate: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """What checkmate with the first move pays besides; each later move pays less, in equal parts, to 0."""
    win_cp: PositiveInt = 1300
    """A side has won that led by so much after three moves of the policy in a row. From ply 80 of the game
    on, it is a draw if neither led by more than 10 after three of them."""
    _game: GameState = PrivateAttr()
    _mover: chess.Color = PrivateAttr(default=chess.WHITE)

    @model_validator(mode="after")
    def _known_opponent(self) -> Self:
        kind, colon, path = self.opponent.partition(":")
        if kind not in _OPPONENTS or bool(colon) != (kind == "uci") or bool(path) != (kind == "uci"):
            raise ValueError(
                f"no opponent {self.opponent[:40]!r}: choose from random, engine, stockfish, uci:PATH, "
                "policy, self"
            )
        options = [n for n in (*_LIMITS, "skill", "elo", "every") if getattr(self, n) is not None]
        if wrong := [name for name in options if name not in _OPPONENTS[kind]]:
            raise ValueError(f"opponent={kind} has no option {wrong[0]}={getattr(self, wrong[0])}")
        if kind in ("stockfish", "uci") and not (self.nodes or self.depth):
            raise ValueError(f"opponent={self.opponent[:40]} needs nodes= or depth=")
        if self.skill is not None and self.elo is not None:
            raise ValueError(f"skill={self.skill} and elo={self.elo} exclude each other")
        if kind == "self" and (self.blunders or self.colours == "both"):
            raise ValueError("opponent=self plays both colours, and has no blunders")
        return self

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        rules = Rules(max_plies=self.plies, win_cp=self.win_cp, adjudicate_plies=3)
        self._game = GameState(chess.Board(position.fen), rules)
        return super().reset(position, style=style, seed=seed, judge=judge)

    async def begin(self, played: Prompt | None = None) -> Prompt | None:
        if self.colours == "mover" or self._slot % 2 == 0 or (played and played.fen == self._prompt.fen):
            return None
        board = self._game.board
        reply = self._reply_before(played.fen) if played else await self._reply()
        self._game.play(reply)
        if self._game.end:  # the opponent's first move ended it: the policy plays the side to move after all
            board.pop()
            return None
        self._prompt = self._shown()
        return self._prompt

    def _reply_before(self, fen: str) -> chess.Move:
        """The opponent's move after which the prompt has this FEN."""
        board = self._game.board
        for move in board.legal_moves:
            board.push(move)
            shown = self._shown().fen
            board.pop()
            if shown == fen:
                return move
        raise InvalidInput(f"no move in {board.fen()!r} leads to {fen!r}, where the episode began")

    @property
    def role(self) -> str:
        return chess.COLOR_NAMES[self._game.board.turn]

    async def step(self, turn: Turn) -> EnvironmentStep:
        game, board = self._game, self._game.board
        self._mover = side = board.turn
        mirrored = chess.Board(self._prompt.fen).turn != side
        if turn.verdict is None or turn.verdict.move is None:
            game.play(None)
        else:
            uci = turn.verdict.move.uci
            game.play(board.parse_uci(mirrored_move(uci) if mirrored else uci))
            if score := turn.verdict.eval_after:
                game.scores.append(score if side else Evaluation(_negative(score.cp), _negative(score.mate)))
        if game.end:
            return self._end("", *game.end)
        san, news = "", ""
        if self.opponent != "self":
            reply_san, _, _ = turn.observation.partition(":")
            reply = board.parse_san(reply_san) if reply_san else await self._reply()
            san = written = board.san(reply)
            if mirrored:
                written = board.mirror().san(chess.Move.from_uci(mirrored_move(reply.uci())))
            game.play(reply)
            if game.end:
                return self._end(san, *game.end)
            news = f"Your opponent played {written}.\n"
        prompt = self._shown()
        if self.history == "growing":
            question = prompt.messages[-1]
            prompt = replace(
                prompt,
                messages=(
                    *self._prompt.messages,
                    Message("assistant", turn.completion.text),
                    replace(question, content=f"{news}{question.content}"),
                ),
            )
        self._prompt = prompt
        return EnvironmentStep(san, prompt=prompt)

    def cut(self, turn: Turn) -> EnvironmentStep:
        """As at the limit of plies."""
        return self._end(turn.observation, "1/2-1/2", CONTEXT_LIMIT)

    def _shown(self) -> Prompt:
        return render(self._now(), style=self._style)

    def _now(self) -> Position:
        board = self._game.board
        moves = (*self._position.last_moves, *(move.uci() for move in board.move_stack))
        return replace(self._position, fen=board.fen(), ply=board.ply(), last_moves=moves)

    def _end(self, san: str, result: str, termination: str) -> EnvironmentStep:
        """The end of the game after a turn of `_mover`."""
        score = SCORES[result] if self._mover else 1.0 - SCORES[result]
        mover = {"result": self.result * score}
        other = {"result": self.result * (1.0 - score)} if self.opponent == "self" else {}
        if self.moves_to_mate and termination == "checkmate":
            # The side that mates moved first if the number of moves is odd.
            plies = len(self._game.board.move_stack)
            moves, most = (plies + 1) // 2, (self.plies + plies % 2) // 2
            winner = mover if score == 1.0 else other
            if winner:
                winner["moves_to_mate"] = self.moves_to_mate * (1.0 - (moves - 1) / most)
        return EnvironmentStep(f"{san}: {result}, {termination.replace('_', ' ')}", mover, others=other)

    @property
    def asked(self) -> Opponent:
        """The opponent as the rollouts are asked for its moves."""
        kind, _, path = self.opponent.partition(":")
        every = self.every or Opponent.every
        return Opponent(kind, path, self.nodes, self.depth, skill=self.skill, elo=self.elo, every=every)

    async def _reply(self) -> chess.Move:
        board = self._game.board
        rng = random.Random(f"{self._seed}:{len(board.move_stack)}")
        if self.opponent == "random" or rng.random() < self.blunders:
            return random_move(board, seed=rng.getrandbits(31))
        if self.opponent == "engine":
            return chess.Move.from_uci((await _engine_move(board, self._judge))[0].uci())
        if self._opponents is None:
            raise InvalidInput(f"opponent={self.opponent[:40]}: nobody plays it here")
        seed = rng.getrandbits(31)
        move = await self._opponents.move(self.asked, self._now(), board, style=self._style, seed=seed)
        return move or random_move(board, seed=seed)


class _Tools(Environment):
    turns: PositiveInt = 4
    """The last of so many turns is the answer, whatever it says."""
    searches: NonNegativeInt = 1
    """How often the engine may be called."""
    price: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """What each call costs."""
    search_price: float = Field(default=0.1, ge=0.0, allow_inf_nan=False)
    """What a call of the engine costs besides."""
    calls: Literal["tags", "template"] = "tags"
    """Calls are written in plain tags, or as the model's chat template has them, in JSON."""
    _turns_taken: int = PrivateAttr(default=0)
    _searches: int = PrivateAttr(default=0)

    def reset(self, position: Position, *, style: str, seed: int, judge: Judge) -> Prompt:
        return self.ask(super().reset(position, style=style, seed=seed, judge=judge))

    def ask(self, prompt: Prompt) -> Prompt:
        """Begins a dialogue that asks what `prompt` asks, and returns its first prompt."""
        *before, question = prompt.messages
        note, tools = TAGS_NOTE, ""
        if self.calls == "template":
            note, tools = JSON_NOTE, json.dumps(SCHEMAS)
            if prompt.style in LINES:
                raise InvalidInput(f"calls=template: prompts of style {prompt.style} have no chat template")
        question = replace(question, content=f"{question.content}\n{note.format(turns=self.turns - 1)}")
        self._prompt = replace(prompt, messages=(*before, question), tools=tools)
        return self._prompt

    def _call(self, text: str) -> ToolCall | None:
        return tag_call(text) if self.calls == "tags" else json_call(text)

    def answers(self, text: str) -> bool:
        return self._turns_taken + 1 >= self.turns or not self._call(text)

    async def step(self, turn: Turn) -> EnvironmentStep:
        self._turns_taken += 1
        call = self._call(turn.completion.text)
        if turn.verdict is not None or call is None:
            return EnvironmentStep()
        name, words, fault = call
        cost = self.price
        if name == "engine" and self._searches < self.searches:
            self._searches += 1
            cost += self.search_price
            output = turn.observation or await self._engine()
        else:
            output = fault or self._output(name, words)
        self._prompt = replace(
            self._prompt,
            messages=(
                *self._prompt.messages,
                Message("assistant", turn.completion.text),
                Message("user" if self.calls == "tags" else "tool", output),
            ),
        )
        return EnvironmentStep(output, {"calls": -cost} if cost else {}, self._prompt)

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


async def tool_turns(
    prompt: Prompt, complete: Callable[[Prompt], Awaitable[Completion]], *, turns: int
) -> list[Turn]:
    """The turns of a dialogue that asks what `prompt` asks, each with its prompt: calls in tags, and the
    answer. The engine cannot be called."""
    tools, taken = _Tools(turns=turns, searches=0), list[Turn]()
    asked: Prompt | None = tools.ask(prompt)
    while asked:
        completion = await complete(asked)
        taken.append(Turn(completion, verdict=None, prompt=asked))
        answers = tools.answers(completion.text)
        asked = None if answers else (await tools.step(taken[-1])).prompt
    return taken


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
    built_in: dict[str, Callable[..., Environment]] = {MOVE: _Move, TOOLS: _Tools, "game": _Game}
    return {point.name: point.load() for point in entry_points(group="rookery.episodes")} | built_in


def environment(spec: str, *, opponents: Opponents | None = None, slot: int = 0) -> Environment:
    """A new environment as `spec` describes it; empty means `move`. It is for episode `slot` of a group.
    Raises `InvalidInput` if there is no such kind or option."""
    kind, *options = (part.strip() for part in (spec or MOVE).split(","))
    if kind not in _kinds():
        raise InvalidInput(f"episode {spec[:80]!r}: no kind {kind[:20]!r}: choose from {', '.join(_kinds())}")
    values: dict[str, Any] = dict(option.partition("=")[::2] for option in options)
    try:
        made = _kinds()[kind](**values)
    except ValidationError as error:
        why = validation_message(error.errors(include_url=False)[:1], root=kind)
        raise InvalidInput(f"episode {spec[:80]!r}: {why}") from error
    made._opponents, made._slot = opponents, slot
    return made


@contextmanager
def faults_of(position: Position) -> Iterator[None]:
    """An environment that fails does so again: the position is wrong for it, not this process."""
    try:
        yield
    except RookeryError:
        raise
    except Exception as error:
        place = f"episode {position.episode[:80]!r} of position {position.id!r}"
        raise InvalidInput(f"{place}: {type(error).__name__}: {error}") from error


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


def with_calls(mix: str, calls: str) -> str:
    """A mix whose dialogues with tools have these `calls`, unless they name some.

    >>> with_calls("0.7*move + 0.3*tools,turns=2", "template")
    '0.7*move + 0.3*tools,turns=2,calls=template'
    """
    parts = mix.split("+")
    for place, part in enumerate(parts):
        kind, *options = (word.strip() for word in part.rpartition("*")[2].split(","))
        if kind == TOOLS and not any(option.startswith("calls=") for option in options):
            spec = part.rstrip()
            parts[place] = f"{spec},calls={calls}{part.removeprefix(spec)}"
    return "+".join(parts)


def opponent_of(spec: str) -> Opponent | None:
    """Who plays the other side, if it is a game."""
    game = environment(spec)
    return game.asked if isinstance(game, _Game) else None


def opponents_of(mix: str) -> list[Opponent]:
    """The engines and versions that play in games of a mix."""
    played = (opponent_of(spec) for _, spec in parse_mix(mix))
    return [each for each in played if each and each.kind in ("stockfish", "uci", "policy")]


def opponent_kind(spec: str) -> str:
    """The kind of opponent in games of this kind, which is not checked; empty for other episodes.

    >>> opponent_kind("game,opponent=uci:/bin/engine,nodes=9"), opponent_kind("tools")
    ('uci', '')
    """
    kind, *options = (part.strip() for part in spec.split(","))
    opponent = dict(option.partition("=")[::2] for option in options).get("opponent", "random")
    return opponent.partition(":")[0] if kind == "game" else ""


def book_of(spec: str) -> str:
    """From where the openings are that games of this kind begin with: `book`, a path, or nothing."""
    game = environment(spec)
    return game.start if isinstance(game, _Game) and game.start != "position" else ""


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
