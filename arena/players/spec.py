"""Makes players from text such as `stockfish,nodes=1000,skill=3`.

A spec is a kind and its options, separated by commas. Each kind is a class below, and its fields are the
options. `model:` and `run:` players need a server, which `rookery evaluate` and `rookery uci` start.
"""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import chess.engine
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from arena.players.dialogue import DialoguePlayer, ToolsPlayer
from arena.players.model import ModelPlayer
from arena.players.player import EpsilonRandomPlayer, FirstLegalPlayer, Player, RandomPlayer
from arena.players.selection import Rule, SelectingPlayer
from rookery.access import AccessSettings
from rookery.clients import InferenceClient
from rookery.engines.player import (
    FULL_SKILL,
    LICHESS_LEVELS,
    EnginePlayer,
    find_binary,
    stockfish_player,
    uci_player,
)
from rookery.errors import QUOTED_CHARS, RookeryError, SetupError, validation_message
from rookery.prompt import LINES, StyleName
from rookery.settings import Settings
from rookery.trace import Sampling

_ENGINE_OPTION = "option."
_NEEDS_SERVER = ("model:", "run:")
PLAYER_SETTINGS = ("player", "players", "specs", "opponent", "referee")
"""The settings of commands that name players. What they name is checked by `check_players`."""

_OMITTED = "(n|seed|temperature|top_p|max_tokens)"
"""A field of a request that a player may leave out."""


def make_player(spec: str, *, served: bool = False) -> Player:
    """The player that `spec` describes. Nothing is started. `served`: a server will be started for a `model:`
    or a `run:`, whose options alone are read. Raises `SetupError` if there is no such kind or option, a value
    is wrong, or an engine or an API key is missing; it quotes the spec."""
    head, *parts = spec.split(",")
    is_address = head.startswith(("http://", "https://"))
    kind, separator, place = ("http", ":", head) if is_address else head.partition(":")
    try:
        if kind + separator in _NEEDS_SERVER and place:
            if not served:
                raise SetupError("it needs a server: `rookery evaluate` and `rookery uci` start one")
            kind, place = "http", "http://served#model"
        if kind not in KINDS or bool(separator) != KINDS[kind].has_place:
            raise SetupError(f"no such kind of player: choose from {', '.join(_FORMS)}")
        return KINDS[kind].model_validate({"spec": spec, "place": place, **_options(parts)}).player()
    except ValidationError as error:
        raise SetupError(f"player {spec[:QUOTED_CHARS]!r}: {_readable(error)}") from error
    except RookeryError as error:
        raise SetupError(f"player {spec[:QUOTED_CHARS]!r}: {error}") from error


def check_players(settings: Settings) -> None:
    """Makes the players that the settings of a command name, before it does anything. Raises `SetupError` as
    `make_player` does."""
    values = [getattr(settings, name, ()) or () for name in PLAYER_SETTINGS]
    specs = [spec for value in values for spec in ((value,) if isinstance(value, str) else value)]

    async def make() -> None:
        for spec in specs:
            await make_player(spec, served=True).close()

    asyncio.run(make())


def _options(parts: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    engine_options: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not (key and equals) or key in ("spec", "place", "option") or "_" in key.partition(".")[0]:
            raise SetupError(f"{part[:QUOTED_CHARS]!r} is not NAME=VALUE")
        if key in options or key.removeprefix(_ENGINE_OPTION) in engine_options:
            raise SetupError(f"{key[:QUOTED_CHARS]!r} is given twice")
        if key.startswith(_ENGINE_OPTION):
            engine_options[key.removeprefix(_ENGINE_OPTION)] = value
        else:
            options[key] = value
    return {**options, "option": engine_options} if engine_options else options


def _readable(error: ValidationError) -> str:
    return "; ".join(
        f"no option {str(e['loc'][0])[:QUOTED_CHARS]!r}"
        if e["type"] == "extra_forbidden"
        else f"{e['loc'][0]}= is missing"
        if e["type"] == "missing"
        else validation_message([e])
        for e in error.errors(include_url=False)
    )


class _Spec(BaseModel, ABC):
    """The options of every kind."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=lambda name: name.replace("_", "-")
    )
    has_place: ClassVar[bool] = False

    spec: str
    place: str
    name: str = Field(default="", pattern=r"^[\w.@+=-]{0,80}$")

    @property
    def player_name(self) -> str:
        """The player's name: by default the spec itself, as a file name can contain it."""
        return self.name or "".join(c if c.isalnum() or c in ".@+=-" else "-" for c in self.spec)

    @abstractmethod
    def player(self) -> Player:
        """The player with these options."""


class _Random(_Spec):
    def player(self) -> Player:
        return RandomPlayer(self.player_name)


class _FirstLegal(_Spec):
    def player(self) -> Player:
        return FirstLegalPlayer(self.player_name)


class _Limited(_Spec):
    """An engine that is told when to stop: after so many nodes, plies or milliseconds."""

    nodes: PositiveInt | None = None
    depth: PositiveInt | None = None
    movetime: PositiveInt | None = None

    @property
    def limit(self) -> chess.engine.Limit:
        if not (self.nodes or self.depth or self.movetime):
            raise SetupError("nodes= is missing (or depth=, or movetime= in milliseconds)")
        return chess.engine.Limit(
            nodes=self.nodes, depth=self.depth, time=self.movetime and self.movetime / 1000
        )


class _Stockfish(_Limited):
    skill: Annotated[int, Field(ge=0, le=FULL_SKILL)] | None = None
    elo: PositiveInt | None = None
    hash: PositiveInt = 1
    path: Path | None = None

    def player(self) -> Player:
        if self.skill is not None and self.elo is not None:
            raise SetupError("skill= and elo= exclude each other: both set Stockfish's skill")
        return stockfish_player(
            self.player_name,
            limit=self.limit,
            skill=self.skill,
            elo=self.elo,
            hash_mb=self.hash,
            path=self.path,
        )


class _Fairy(_Spec):
    """Fairy-Stockfish at a level of Lichess, without the clock."""

    level: int = Field(ge=1, le=8)
    path: Path | None = None

    def player(self) -> Player:
        skill, depth = LICHESS_LEVELS[self.level - 1]
        return EnginePlayer(
            self.player_name,
            find_binary(self.path, engine="fairy-stockfish"),
            limit=chess.engine.Limit(depth=depth),
            options={"Threads": 1, "Hash": 16, "Skill Level": skill},
            reproducible=skill == FULL_SKILL,
        )


class _Uci(_Limited):
    """Any UCI engine, with one thread unless an option says otherwise."""

    has_place: ClassVar[bool] = True
    option: dict[str, str] = Field(default_factory=dict)

    def player(self) -> Player:
        return uci_player(self.player_name, Path(self.place), limit=self.limit, options=self.option)


class _EpsilonRandom(_Limited):
    share: float = Field(ge=0, le=1)

    def player(self) -> Player:
        engine = stockfish_player(f"{self.player_name}-engine", limit=self.limit)
        return EpsilonRandomPlayer(engine, self.share, self.player_name)


class _Http(_Spec):
    """A model behind an OpenAI-compatible endpoint: `http://host:8000#model`."""

    has_place: ClassVar[bool] = True
    style: StyleName = "mover-squares"
    temperature: float = Field(default=0.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    max_tokens: PositiveInt = 32
    key_env: str = ""
    key_file: Path | None = None
    source: str = ""
    thinking: bool | None = None
    omit: str = Field(default="", pattern=rf"^({_OMITTED}(\+{_OMITTED})*)?$")
    tokens_field: str = Field(default="max_tokens", pattern=r"^\w{1,40}$")
    opening: str | None = Field(default=None, max_length=40)
    vote: int | None = Field(default=None, ge=2, le=1024)
    verify: int | None = Field(default=None, ge=2, le=1024)
    best_of: int | None = Field(default=None, ge=2, le=1024)
    dialogue: Literal["llm-chess"] | None = None
    tools: int | None = Field(default=None, ge=2, le=64)

    @property
    def player_name(self) -> str:
        return self.name or self.place.partition("#")[2].rpartition("/")[2]

    def player(self) -> Player:
        url, _, model = self.place.partition("#")
        if not model:
            raise SetupError("the model's name is missing: http://HOST:PORT#MODEL")
        fields = {"max_tokens": self.tokens_field} if self.tokens_field != "max_tokens" else {}
        fields |= dict.fromkeys(filter(None, self.omit.split("+")), "")
        # Our certificates, which are not secret, but the player's own key: the server may be anybody's.
        access = AccessSettings().access.with_key(self.key_env, self.key_file)
        player = ModelPlayer(
            name=self.player_name,
            client=InferenceClient(
                url.rstrip("/").removesuffix("/v1"), access=access, fields=fields, opening=self.opening
            ),
            model=model,
            style=self.style,
            sampling=Sampling(self.temperature, self.top_p, self.top_k, self.max_tokens),
            source=self.source,
            thinking=self.thinking,
            renamed=fields or None,
            opening=self.opening,
        )
        rules: dict[Rule, int | None] = {"vote": self.vote, "verify": self.verify, "best-of": self.best_of}
        given = {rule: answers for rule, answers in rules.items() if answers is not None}
        names = [*given, *(name for name in ("dialogue", "tools") if getattr(self, name))]
        if len(names) > 1:
            raise SetupError(f"{'= and '.join(names)}= exclude each other")
        if self.dialogue:
            return DialoguePlayer(**vars(player), dialogue=self.dialogue)
        if self.tools:
            if self.style in LINES:
                raise SetupError(f"tools={self.tools}: prompts of style {self.style} are no dialogue")
            return ToolsPlayer(**vars(player), tools=self.tools)
        for rule, answers in given.items():
            if not self.temperature and "temperature" in self.model_fields_set:
                raise SetupError(f"temperature=0 gives the same answer {answers} times: {rule}= needs more")
            sampling = replace(player.sampling, temperature=self.temperature or 1.0)
            return SelectingPlayer(**{**vars(player), "sampling": sampling}, rule=rule, answers=answers)
        return player


KINDS: dict[str, type[_Spec]] = {
    "random": _Random,
    "first-legal": _FirstLegal,
    "epsilon-random": _EpsilonRandom,
    "stockfish": _Stockfish,
    "fairy": _Fairy,
    "uci": _Uci,
    "http": _Http,
}
"""The kinds of players, each with the class of its options."""

_FORMS = (
    "random", "first-legal", "epsilon-random,share=S,nodes=N", "stockfish,nodes=N", "fairy,level=L",
    "uci:PATH,nodes=N", "http://HOST:PORT#MODEL", "model:DIR", "run:DIR",
)  # fmt: skip
