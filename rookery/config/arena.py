"""Settings of the arena's commands: flags, environment variables or a TOML file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator
from pydantic_settings import CliPositionalArg

from rookery.access import AccessSettings
from rookery.devices import Device
from rookery.remote import FolderPath, PathOrUrl, ShippedPath
from rookery.settings import HttpUrl, Port, RunSettings, Settings, Specs


def _known_style(style: str) -> str:
    """The style. Raises `ValueError` if there is none of this name, or it is for RookWorld's lines."""
    from rookery.prompt import LINES, STYLES  # python-chess, which --help does without

    if style not in STYLES or style in LINES:
        raise ValueError(f"choose from {', '.join(sorted(set(STYLES) - LINES))}")
    return style


Style = Annotated[str, AfterValidator(_known_style)]


class QuestionPositionSettings(Settings):
    """Positions, and how often players are asked about them."""

    positions: Path | None = None
    """JSONL file with one position per line."""
    count: int = Field(default=500, ge=1)
    """Number of positions."""
    samples: int = Field(default=4, ge=0, le=64)
    """Sampled answers per position, in addition to the greedy one."""
    seed: int = Field(default=0, ge=0)
    """Seed of the drawn positions and puzzles, the sampled answers, the games and the bootstrap."""


class QuestionSettings(QuestionPositionSettings, AccessSettings):
    """What `evaluate` and `watch` have in common: positions, and how players are asked about them."""

    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC address of the reward service. Only for positions."""
    data_url: HttpUrl | None = None
    """URL of a data service with held-out positions. Give either this or --positions."""
    exclude: Path | None = None
    """JSONL file of positions to leave out, such as those the policies were trained on."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Temperature of the sampled answers."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Questions asked at the same time."""


class EvaluationSettings(QuestionPositionSettings):
    """What `rookery evaluate` and `rookery arena evaluate` have in common."""

    players: CliPositionalArg[Specs]
    """The players, such as model:models/rook-tiny run:demo@42 stockfish,nodes=100."""
    sections: str = "positions,reasoning"
    """Which ones, separated by commas: positions, reasoning, influence, brittleness, puzzles, suites,
    chessqa, matches, contamination; or all for which there is what they need, such as --chessqa."""
    styles: bool = False
    """Ask language models in each of the seven position formats too."""
    puzzles: tuple[ShippedPath, ...] = ()
    """Files of puzzles: the Lichess CSV, or PGN whose games start at the solver's turn. Repeatable."""
    puzzle_count: int = Field(default=1000, ge=1)
    """Maximum number of puzzles from each file."""
    suites: tuple[Path, ...] = ()
    """Test suites in EPD with bm or am. Repeatable."""
    chessqa: tuple[Path, ...] = ()
    """Files of ChessQA's questions, such as structural.jsonl. Repeatable."""
    chessqa_count: PositiveInt = 100
    """Maximum number of ChessQA's questions of each type."""
    chessqa_context: bool = False
    """Give ChessQA's questions the list of pieces and of legal moves."""
    chessqa_protocol: Literal["chessqa", "c1"] = "chessqa"
    """c1: ask the short tactics alone, with the prompt and the exact match of CSSLab/C1."""
    against: tuple[Path, ...] = ()
    """Figures to show beside these: another report.json, or JSON of published ones. Repeatable."""
    dry_run: bool = False
    """Count the questions and estimate tokens and time, and ask nothing."""
    budget_minutes: float | None = Field(default=None, gt=0)
    """Stop after so many minutes. The same command continues."""
    budget_tokens: PositiveInt | None = None
    """Stop when the answers in --out have so many tokens. A command with more of them continues."""

    @property
    def asks(self) -> frozenset[str]:
        """The sections, by name."""
        if self.sections != "all":
            return frozenset(self.sections.split(","))
        return SECTIONS - {name for name in ("puzzles", "suites", "chessqa") if not getattr(self, name)}


class ArenaEvaluateSettings(EvaluationSettings, QuestionSettings, env_prefix="ARENA_EVALUATE_"):
    """Evaluate players on positions, puzzles and test suites, and write report.json and report.html.

    A player is written as a spec, such as http://127.0.0.1:8000#policy-v000150 or stockfish,nodes=100. The
    first one is the baseline of the others. A killed evaluation continues where it stopped.
    """

    ask_only: bool = False
    """Only collect the answers: a later evaluation of more players with the same --out writes the report."""
    out: FolderPath
    """Folder of the answers and the report. A metrics.jsonl there gives the learning curve."""

    @model_validator(mode="after")
    def _sources(self) -> "ArenaEvaluateSettings":
        if unknown := self.asks - SECTIONS:
            raise ValueError(
                f"no section {', '.join(sorted(unknown))!r}: choose from {', '.join(sorted(SECTIONS))}"
            )
        if self.asks & ASKS_POSITIONS and (self.positions is None) == (self.data_url is None):
            raise ValueError("give exactly one of --positions and --data-url")
        if "puzzles" in self.asks and not self.puzzles:
            raise ValueError("the section puzzles needs --puzzles")
        if "suites" in self.asks and not self.suites:
            raise ValueError("the section suites needs --suites")
        if "chessqa" in self.asks and not self.chessqa:
            raise ValueError("the section chessqa needs --chessqa")
        return self


ASKS_POSITIONS = frozenset({"positions", "reasoning", "influence", "brittleness"})
"""The sections that ask about `--positions`."""

SECTIONS = ASKS_POSITIONS | {"puzzles", "suites", "chessqa", "matches", "contamination"}


class WatchSettings(QuestionSettings, RunSettings, env_prefix="ARENA_"):
    """Evaluate every Nth version of a run while it trains, and write strength.jsonl to its folder.

    Each version is asked about the same held-out positions and plays a short match. It is leased from the
    inference server meanwhile, so it stays served.
    """

    run_dir: FolderPath
    """Folder of the run. strength.jsonl and the answers and games of each version are written there."""
    every: PositiveInt = 25
    """Evaluate version 0 and every Nth one. While an evaluation takes longer, versions are skipped."""
    inference_url: HttpUrl = "http://127.0.0.1:8000"
    """Inference server of the run, with --leases of at least 1."""
    style: Style = "mover-squares"
    """Prompt style; use the same as the rollouts."""
    max_tokens: PositiveInt = 32
    """Longest answer, in tokens; use the same as the rollouts."""
    thinking: bool | None = None
    """Whether a model that can think, such as Qwen3, does. Default: as the inference server has it."""
    count: int = Field(default=200, ge=1)
    """Number of positions."""
    samples: int = Field(default=2, ge=0, le=64)
    """Sampled answers per position, in addition to the greedy one."""
    concurrency: int = Field(default=8, ge=1, le=1024)
    """Questions asked, or games played, at the same time."""
    opponent: str = "random"
    """The opponent of the match, such as random or epsilon-random,share=0.6,nodes=1."""
    pairs: int = Field(default=10, ge=0)
    """Openings of the match, each played with both colours. 0: no match."""
    max_plies: PositiveInt = 200
    """A game is a draw after this many moves of both sides together."""
    referee: str = "stockfish,nodes=200"
    """Player that ends games drawn, or at 13 pawns or more, for six plies. Empty: none."""
    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8009
    """Port of the probes and metrics; 0 picks a free one."""

    @model_validator(mode="after")
    def _one_source(self) -> "WatchSettings":
        if (self.positions is None) == (self.data_url is None):
            raise ValueError("give exactly one of --positions and --data-url")
        return self


class QuestionsSettings(Settings, env_prefix="ARENA_QUESTIONS_"):
    """Print the questions of the section brittleness, for inspect-ai and lm-evaluation-harness: each position
    as it is and in changed forms, one JSON object per line.

    Examples:
      rookery data sample --split heldout --distinct --count 200 > heldout.jsonl
      rookery arena questions --positions heldout.jsonl --count 100 > brittleness.jsonl
    """

    positions: Path
    """JSONL file with one position per line."""
    count: PositiveInt = 100
    """Number of positions."""
    style: Style = "fen"
    """Prompt style."""
    seed: int = Field(default=0, ge=0)
    """Seed of the drawn and of the shuffled positions, and of the illegal claims."""


class CurveSettings(Settings, env_prefix="ARENA_CURVE_"):
    """Draw the learning curve of a run from its metrics.jsonl, and its strength from strength.jsonl."""

    run: CliPositionalArg[PathOrUrl]
    """The run, by name or folder. learning_curve.png is written to its folder."""


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
    out: FolderPath
    """Folder for match.json, games.jsonl and games.pgn. Games in it of the same settings are not repeated."""


class MatchSettings(GameSettings, env_prefix="ARENA_MATCH_"):
    """Play a match between two players, or test with as few games as possible whether one is stronger."""

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
        conflicts = self.model_fields_set & {"illegal", "max_plies", "limit_cp", "openings"}
        if self.llm_chess and conflicts:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(conflicts))
            raise ValueError(f"--llm-chess has rules of its own and no openings: leave out {flags}")
        return self


class TournamentSettings(GameSettings, env_prefix="ARENA_TOURNAMENT_"):
    """Play a tournament and fit the ratings of all players together."""

    players: CliPositionalArg[Specs] = Field(min_length=2)
    """The players; for a ladder, from weak to strong; for a gauntlet, the one that plays all others first."""
    schedule: Literal["round-robin", "gauntlet", "ladder"] = "round-robin"
    """Who plays whom: all pairs, the first player against all others, or neighbours in the list."""
    anchors: Path | None = None
    """Ratings to hold: `ladder` (the published one), a match.json, or a JSON object of names and numbers."""


class EloSettings(Settings, env_prefix="ARENA_ELO_"):
    """Fit the ratings of all players of a games.jsonl."""

    games: CliPositionalArg[Path]
    """Finished games, as `match` and `tournament` write them."""
    anchors: Path | None = None
    """Ratings to hold: `ladder` (the published one), a match.json, or a JSON object of names and numbers."""


class UciSettings(Settings, env_prefix="UCI_"):
    """Play as a UCI engine, in a GUI, a match runner or on Lichess. Commands are read from standard input.

    Players: run:RUN[@VERSION], model:DIR_OR_HUB_ID, http://HOST:PORT#MODEL, stockfish,nodes=N,
    fairy,level=L, random and others; options follow after commas, such as style=fen,temperature=0.5.
    """

    player: str = ""
    """The player. Default: --model."""
    model: PathOrUrl = "models/rook-small-rl"
    """A model directory or Hugging Face id, which is served on this machine: short for --player model:..."""
    device: Device = "auto"
    """Where a served model computes: cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto."""
    seed: int | None = Field(default=None, ge=0)
    """Seed of sampled answers and random moves. Default: a new one at every start."""
    server_command: str = shlex.join([sys.executable, "-m", "launcher", "serve", "players"])
    """Command that serves the players model: and run:."""

    @model_validator(mode="after")
    def _one_player(self) -> "UciSettings":
        if self.player and "model" in self.model_fields_set:
            raise ValueError("give --player or --model, not both")
        return self

    @property
    def spec(self) -> str:
        return self.player or f"model:{self.model}"
