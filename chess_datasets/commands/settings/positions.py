"""The settings of the commands that write a data set of positions: tasks, annotate and pairs."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic_settings import CliPositionalArg

from chess_datasets.commands.settings.shared import (
    CommandSettings,
    DataSetSettings,
    EngineWorkSettings,
    FileName,
    JobSettings,
    PositionSourceSettings,
    RewardAddressSettings,
    Share,
)
from rookery.prompt import LINES, Notation, StyleName, notation_of
from rookery.remote import PathOrUrl
from rookery.settings import HttpUrl, Several


class RookworldSettings(CommandSettings, help_group="rookworld"):
    """RookWorld's lines."""

    layout: Literal["published", "generator", "compact"] = "published"
    """Columns of P: lines."""
    state_share: Share = 0.2
    """Share of A: lines."""
    illegal_share: Share = 0.05
    """Share of illegal moves in A: lines."""
    ending_share: Share = 0.5
    """Share of moves that end the game, where a move can."""


class EngineMovesSettings(CommandSettings, help_group="engine-moves"):
    """Candidate moves with soft targets."""

    nodes: PositiveInt = 20_000
    """Nodes per position; of rookworld, too."""
    lines: PositiveInt = 8
    """Engine lines."""
    candidates: PositiveInt = 3
    """Candidate moves in an answer."""
    line_counts: Several[tuple[NonNegativeInt, ...]] = ()
    """Numbers of lines to draw from instead, such as 0 1 3 5: candidates with the best reply and a value, in
    UCI. For bad moves too, set --lines 250: all legal moves."""
    remarks: NonNegativeInt = 0
    """Most true sentences before them; one about the chosen move follows."""
    call_share: Share = 0.0
    """Ask as in a dialogue with tools: this share of the answers calls legal_moves, the others follow its
    list."""
    temperature: float = Field(default=0.05, gt=0, allow_inf_nan=False)
    """Temperature of the softmax over win probabilities."""
    best_share: Share = 0.3
    """Probability added to the engine's first move."""
    uniform_share: Share = 0.1
    """Probability spread over all legal moves."""
    mate_bonus: Share = 0.2
    """Added to the win probability of a move that mates in n, divided by n."""

    @model_validator(mode="after")
    def _distribution(self) -> Self:
        if self.best_share + self.uniform_share > 1:
            shares = f"--best-share {self.best_share} and --uniform-share {self.uniform_share}"
            raise ValueError(f"{shares}: together more than 1")
        if self.line_counts and (flags := self.changed("remarks", "candidates")):
            raise ValueError(f"{flags}: no effect with --line-counts")
        if self.line_counts and max(self.line_counts) > self.lines:
            raise ValueError(f"--line-counts {max(self.line_counts)}: more than --lines {self.lines}")
        return self


class PuzzleSettings(CommandSettings, help_group="puzzle"):
    """Which puzzles to take."""

    puzzles: PathOrUrl = ""
    """The puzzle database of Lichess, a CSV file, compressed or not, or its URL."""
    min_rating: NonNegativeInt = 0
    """The lowest rating."""
    max_rating: NonNegativeInt = 9999
    """The highest rating."""
    max_deviation: NonNegativeInt = 9999
    """The largest rating deviation."""
    min_popularity: int = -100
    """The lowest popularity."""
    min_plays: NonNegativeInt = 0
    """The least number of plays."""
    themes: Several[tuple[str, ...]] = ()
    """Take puzzles with at least one of these themes."""
    without: Several[tuple[str, ...]] = ()
    """Leave out puzzles with one of these themes."""
    balance_themes: bool = False
    """Take about as many puzzles of each theme, or of each of --themes."""


_NO_PUZZLES = (
    *("source", "positions", "split", "random_moves", "only"),
    *("nodes", "engines", "engine", "ray"),
)


class TasksSettings(
    EngineWorkSettings, RookworldSettings, EngineMovesSettings, PuzzleSettings, env_prefix="DATA_TASKS_"
):
    r"""Write questions with their answers. Called again with the same flags, a stopped command continues.

    RookWorld's P: and A: lines with correct labels, questions about the board, legal moves, the position
    after a move, candidate moves with soft targets from an engine, and puzzles from Lichess.

    Examples:
      rookery data tasks rookworld --count 10000 --out runs/rookworld --text lines.txt
      rookery data tasks board --count 10000 --source games/*.pgn.zst --out runs/board --jsonl board.jsonl
      rookery data tasks legal-moves --count 1000 --format ascii --out runs/legal --jsonl legal.jsonl
      rookery data tasks next-fen --count 1000 --source games/*.pgn.zst --out s3://bucket/next
      rookery data tasks engine-moves --count 1000 --nodes 1000 --style mover-squares --out runs/engine-moves
      rookery data tasks puzzle --puzzles lichess_db_puzzle.csv.zst --count 5000 --min-rating 1200 \
          --themes fork pin --out runs/puzzles
    """

    task: CliPositionalArg[Literal["rookworld", "board", "legal-moves", "next-fen", "engine-moves", "puzzle"]]
    """What is asked. The --count of puzzle is that of puzzles."""
    jsonl: FileName | None = None
    """Also write conversations to NAME.jsonl or NAME.jsonl.zst."""
    text: FileName | None = None
    """Also write prompts and answers as plain lines to this file."""
    format: Literal["fen", "spelled", "ascii", "pieces", "pgn", "san", "uci"] = "fen"
    """Format of positions for board, legal-moves and next-fen."""
    style: StyleName = "fen"
    """Style of positions for engine-moves and puzzle, such as mover-squares."""
    box: Notation | None = None
    """Notation of the moves in answers. Default: for engine-moves that of the style, uci where it shows no
    moves, san with --call-share; for board uci, for puzzle san."""

    @property
    def engine_box(self) -> Notation:
        """The notation of engine-moves."""
        return self.box or ("san" if self.call_share else notation_of(self.style))

    @model_validator(mode="after")
    def _files(self) -> Self:
        if self.jsonl and self.jsonl == self.text:
            raise ValueError(f"--jsonl and --text have the same name: {self.text!r}")
        if self.call_share and self.style in LINES:
            raise ValueError(
                f"--call-share {self.call_share:g}: prompts of style {self.style} are no dialogue"
            )
        if self.line_counts and self.engine_box == "san":
            raise ValueError("--line-counts: lines are in UCI: --box uci")
        if self.task == "puzzle" and not self.puzzles:
            raise ValueError("the task puzzle needs --puzzles FILE")
        if self.task == "puzzle" and (flags := self.changed(*_NO_PUZZLES)):
            raise ValueError(
                f"{flags}: no effect with the task puzzle, whose positions are those of --puzzles"
            )
        return self


class TextSettings(CommandSettings, help_group="text"):
    """How analyses are written, and how hard the engine works for them."""

    voice: str = "any"
    """Whose voice: any (a random one for each text), or one of those that an unknown name prints."""
    length: str = "any"
    """short, medium, long, any, or 30 and more tokens."""
    box: Literal["san", "uci"] = "san"
    """Notation of the answer."""
    nodes: PositiveInt = 100_000
    """Nodes of the search for the best move; other moves get half."""
    lines: PositiveInt = 3
    """Engine lines to consider."""


class AnnotateSettings(EngineWorkSettings, TextSettings, env_prefix="DATA_ANNOTATE_"):
    """Write analyses in the voice of a strong player, every claim of which is checked on the board.

    What a position is about, candidate moves, the lines that refute the worse ones, and the choice in
    \\boxed{}. Texts with a false claim are not used. A stopped command continues when it is called again with
    the same flags.

    Examples:
      rookery data annotate --count 20 --out runs/annotations
      rookery data annotate --count 5000 --source games/*.pgn.zst --engines 8 --out s3://bucket/start
      rookery data annotate --count 1000000 --ray auto --out s3://bucket/start
      rookery data annotate --count 500 --voice coach --length 300 --style pgn --out runs/coach
    """

    style: StyleName = "fen"
    """How positions are shown, such as pgn."""


class PolicySettings(CommandSettings, help_group="policy"):
    """The policy that plays the weaker moves."""

    inference: Several[tuple[HttpUrl, ...]] = ()
    """URLs of inference servers with the same model. Default: the weaker moves are random ones."""
    key_env: str = ""
    """Variable with the servers' key. Default: the run's token."""
    key_file: Path | None = None
    """File with the servers' key."""
    model: str = "policy"
    """Name of the model on these servers."""
    policy_style: StyleName | None = None
    """How positions are shown to the policy, such as game-san. Default: as in the pairs."""
    completions: PositiveInt = 4
    """Answers per position."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature."""
    max_tokens: PositiveInt = 64
    """The most tokens of an answer."""
    in_flight: PositiveInt = 64
    """Positions in work at the same time."""

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        self.check_alternatives("key_env", "key_file")
        return self


class PairsSettings(
    PositionSourceSettings,
    DataSetSettings,
    JobSettings,
    RewardAddressSettings,
    PolicySettings,
    env_prefix="DATA_PAIRS_",
):
    """Write preference pairs: the engine's move in a position is preferred to a weaker one.

    Both have their win probability. The weaker move is the policy's own (--inference) or else the best of
    some random legal moves that are worse than the engine's. A stopped command continues when it is called
    again with the same flags.

    Examples:
      rookery data pairs --count 1000 --out runs/pairs
      rookery data pairs --count 100000 --source games/*.pgn.zst --nodes 20000 --out s3://bucket/pairs
      rookery data pairs --count 5000 --inference http://localhost:8000 --model policy --out runs/student
    """

    jsonl: FileName | None = None
    """Also write JSON lines to NAME.jsonl or NAME.jsonl.zst."""
    style: StyleName = "mover-squares"
    """How positions are shown, such as fen."""
    candidates: PositiveInt = 4
    """Random legal moves per position."""
    min_gap: Share = 0.05
    """The least win probability that the weaker move loses."""
    max_gap: Share = 1.0
    """The most win probability that it loses."""
    nodes: PositiveInt = 5000
    """Nodes per search of the reward service that is started."""
