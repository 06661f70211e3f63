"""Settings of the commands about games: `match`, `tournament`, `plan` and `elo`."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.settings import Settings

_OPTION = re.compile(r"[\w. -]+=")


def _rejoined(parts: object) -> object:
    """Puts specifications such as `stockfish,nodes=10` together, which pydantic-settings splits at commas."""
    if not isinstance(parts, list):
        return parts
    specs: list[str] = []
    for part in map(str, parts):
        if specs and _OPTION.match(part):
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


Specs = Annotated[list[str], BeforeValidator(_rejoined), Field(min_length=2)]


class GameSettings(Settings):
    """What `match` and `tournament` have in common."""

    pairs: int = Field(default=100, ge=1)
    """Openings to play. Each gives two games a pairing, with swapped colours."""
    openings: Path | None = None
    """Book of openings: .pgn, .epd, .fen or .tsv, also with .gz. Default: the built-in one, 333 lines."""
    illegal: str = Field(default="forfeit", pattern=r"^(forfeit|random|retry:[1-9]\d?)$")
    """After an illegal move: forfeit the game, retry:K (ask up to K more times), or random (a legal move)."""
    max_plies: int = Field(default=400, ge=1)
    """The game is a draw after this many moves of both sides together."""
    referee: str | None = None
    """Player, such as stockfish,nodes=10000, that ends games at 13 pawns, or drawn ones, for six plies."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Games played at the same time. It does not change the results."""
    seed: int = Field(default=0, ge=0)
    """Seed of the openings and of all moves."""
    out: Path
    """Folder for match.json, games.jsonl and games.pgn. If it has games of the same settings, go on there."""


class MatchSettings(GameSettings):
    """Play a match between two players, or test with as few games as possible whether one is stronger."""

    model_config = SettingsConfigDict(env_prefix="ARENA_MATCH_")

    player: CliPositionalArg[str]
    """The player whose strength is asked for, such as random or stockfish,nodes=1000."""
    opponent: CliPositionalArg[str]
    """The player it is compared with."""
    sprt: str | None = Field(default=None, pattern=r"^-?[\d.]+,-?[\d.]+$")
    """Stop as soon as one is clear: the player is at most the first Elo stronger, or at least the second."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Of --sprt: probability to find the player stronger by mistake."""
    beta: float = Field(default=0.05, gt=0, lt=0.5)
    """Of --sprt: probability to overlook that it is stronger."""
    elo_model: Literal["normalized", "logistic"] = "normalized"
    """Of --sprt: the unit of its two numbers."""
    llm_chess: bool = False
    """Play as llm_chess does: player is Black, 200 plies, retry:2, no openings. --pairs counts games."""

    @model_validator(mode="after")
    def _one_protocol(self) -> "MatchSettings":
        if self.llm_chess and self.sprt:
            raise ValueError("--sprt needs pairs with both colours, which --llm-chess does not play")
        return self


class TournamentSettings(GameSettings):
    """Play a tournament and fit the ratings of all players together."""

    model_config = SettingsConfigDict(env_prefix="ARENA_TOURNAMENT_")

    players: CliPositionalArg[Specs]
    """The players; for a ladder, from weak to strong; for a gauntlet, the one that plays all others first."""
    schedule: Literal["round-robin", "gauntlet", "ladder"] = "round-robin"
    """Who plays whom: everybody, the first player everybody else, or each its neighbours."""
    anchors: Path | None = None
    """Ratings to hold: `ladder` (the published one), a match.json, or a JSON object of names and numbers."""


class EloSettings(Settings):
    """Fit the ratings of all players of a games.jsonl."""

    model_config = SettingsConfigDict(env_prefix="ARENA_ELO_")

    games: CliPositionalArg[Path]
    """Finished games, as `match` and `tournament` write them."""
    anchors: Path | None = None
    """Ratings to hold: `ladder` (the published one), a match.json, or a JSON object of names and numbers."""


class PlanSettings(Settings):
    """Say how many games a question needs."""

    model_config = SettingsConfigDict(env_prefix="ARENA_PLAN_")

    elo: float = 20.0
    """Difference in strength that is expected."""
    margin: float = Field(default=20.0, gt=0)
    """Width of the 95% interval on either side, in Elo."""
    draws: float = Field(default=0.3, ge=0, le=1)
    """Share of games that are drawn."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Of a sequential test: probability to find the player stronger by mistake."""
    beta: float = Field(default=0.05, gt=0, lt=0.5)
    """Of a sequential test: probability to overlook that it is stronger."""
