"""Settings of the commands about games: `match`, `tournament`, `plan` and `elo`."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.settings import Settings, Specs


class GameSettings(Settings):
    """What `match` and `tournament` have in common."""

    pairs: int = Field(default=100, ge=1)
    """Openings to play. Each gives two games a pairing, with swapped colours."""
    openings: Path | None = None
    """Book of openings: .pgn, .epd, .fen or .tsv, also with .gz. Default: the built-in one, 333 lines."""
    illegal: str = Field(default="forfeit", pattern=r"^(forfeit|random|retry:[1-9]\d?)$")
    """After an illegal move: forfeit the game, retry:K (ask up to K more times), or random (a legal move)."""
    max_plies: int = Field(default=400, ge=1)
    """The game ends after this many moves of both sides together."""
    limit_cp: int | None = Field(default=None, ge=1)
    """Lead in centipawns, by --referee, that wins at --max-plies. Default: a draw."""
    referee: str | None = None
    """Player, such as stockfish,nodes=10000, that ends games drawn, or at 13 pawns or more, for six plies."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Games played at the same time. It does not change the results."""
    ray: str | None = None
    """Ray cluster whose workers play the games: auto, HOST:PORT or ray://HOST:PORT. Default: this process."""
    seed: int = Field(default=0, ge=0)
    """Seed of the openings and of all moves."""
    out: Path
    """Folder for match.json, games.jsonl and games.pgn. Games in it of the same settings are not repeated."""


class MatchSettings(GameSettings):
    """Play a match between two players, or test with as few games as possible whether one is stronger."""

    model_config = SettingsConfigDict(env_prefix="ARENA_MATCH_")

    player: CliPositionalArg[str]
    """The player to measure, such as random or stockfish,nodes=1000."""
    opponent: CliPositionalArg[str]
    """The opponent."""
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

    players: CliPositionalArg[Specs] = Field(min_length=2)
    """The players; for a ladder, from weak to strong; for a gauntlet, the one that plays all others first."""
    schedule: Literal["round-robin", "gauntlet", "ladder"] = "round-robin"
    """Who plays whom: all pairs, the first player against all others, or neighbours in the list."""
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
    """Compute how many games are needed to answer a question."""

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
