"""The settings of the commands that read games: index, sample, games, moves, overlap and stats."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_settings import CliPositionalArg

from chess_datasets.commands.settings.shared import (
    CommandSettings,
    DataSetSettings,
    ExamSettings,
    GameSourceSettings,
    JobSettings,
    Share,
)
from rookery.prompt import GAME_STYLES, Notation, StyleName
from rookery.remote import FolderOrUrl, NamedPath, OutputPath, PathOrUrl
from rookery.settings import Several


class IndexSettings(JobSettings, env_prefix="DATA_INDEX_"):
    """Write FILE.index.parquet beside each file: where every game begins, its id and its tags.

    The service and the feed then start at once on files of any size and read only the games they need. This
    is fastest with plain text, fast with files of pzstd, and slow with other compression.

    Examples:
      rookery data index lichess_db_standard_rated_2024-08.pgn.zst --jobs 8
      rookery data index games/
    """

    files: CliPositionalArg[Several[tuple[PathOrUrl, ...]]]
    """Games: files, folders, patterns or URLs."""


class FilterSettings(CommandSettings, help_group="filters of games"):
    """Games by their tags. A game whose tags lack a value does not pass a filter on it."""

    elo_min: NonNegativeInt | None = None
    """The least rating of both players."""
    elo_max: NonNegativeInt | None = None
    """The highest rating of both players."""
    elo_gap_max: NonNegativeInt | None = None
    """The largest difference between the ratings."""
    base_s_min: NonNegativeInt | None = None
    """The least time of a player at the start, in seconds."""
    base_s_max: NonNegativeInt | None = None
    """The most time of a player at the start, in seconds."""
    speed: Several[
        tuple[Literal["ultrabullet", "bullet", "blitz", "rapid", "classical", "correspondence"], ...]
    ] = ()
    """Lichess's classes of time control."""
    result: Several[tuple[Literal["1-0", "0-1", "1/2-1/2", "*"], ...]] = ()
    """Results, as in the tag."""
    termination: Several[tuple[Annotated[str, AfterValidator(str.lower)], ...]] = ()
    """Endings, as in the tag, such as normal or 'time forfeit'."""
    variant: Several[tuple[Literal["standard", "chess960"], ...]] = ("standard",)
    """Variants."""
    event: str = ""
    """Text in the Event tag, such as rated."""
    bots: bool = True
    """Take games with a player titled BOT."""
    evals: bool = False
    """Only games with [%eval ...]."""
    games: Share = 1.0
    """Share of the games that is read."""


_TO_WRITE = (*FilterSettings.model_fields, "per_game", "choices_min", "exam", "form", "jobs")
_TO_PRINT = ("offset", "distinct", "game", "style")


class SampleSettings(
    GameSourceSettings, ExamSettings, FilterSettings, JobSettings, env_prefix="DATA_SAMPLE_"
):
    r"""Draw positions from games: 20% opening, 60% middlegame, 20% endgame, and never a finished game.

    Without --out, prints one JSON object per line, in an endless order that the seed determines. With --out,
    reads files of any size once and writes a data set without repeated positions. Its manifest has all that
    is needed to make the same bytes again.

    Examples:
      rookery data sample --count 3
      rookery data sample --game 8999067f:102 --count 1 --ply-min 50 --ply-max 50
      rookery data sample --split heldout --distinct --count 500 > heldout.jsonl
      rookery data sample --source lichess_db_standard_rated_2024-08.pgn.zst --count 1000000 --games 0.05 \
          --elo-min 1800 --speed blitz rapid --no-bots --exam puzzles.csv --jobs 8 --out runs/positions
    """

    count: PositiveInt
    """Number of positions."""
    shares: Several[tuple[float, float, float]] = (0.2, 0.6, 0.2)
    """Weights of openings, middlegames and endgames."""
    style: StyleName | None = None
    """To print: add the prompt in this style, such as pgn; fen is then the board that the answer is for."""
    offset: NonNegativeInt = 0
    """To print: number of positions to skip first."""
    game: str | None = None
    """To print: only positions of this game, each once; --ply-min and --ply-max choose among them. A game_id,
    or the first two parts of a position's id."""
    distinct: bool = False
    """To print: leave out repeated positions, mirrored ones included."""
    out: FolderOrUrl | None = None
    """Folder or URL to write positions.parquet and manifest.json to."""
    form: Literal["parquet", "jsonl", "jsonl.zst"] = "parquet"
    """To write: the file format."""
    per_game: PositiveInt = 1
    """To write: the most positions of one phase from one game."""
    ply_min: NonNegativeInt = 0
    """The least number of half-moves before a position."""
    ply_max: NonNegativeInt | None = None
    """The most half-moves before a position."""
    choices_min: PositiveInt = 1
    """To write: the least number of legal moves."""

    @model_validator(mode="after")
    def _print_or_write(self) -> Self:
        self.check_alternatives("offset", "distinct", "game")
        if self.out is None:
            plies = () if self.game else ("ply_min", "ply_max")
            if flags := self.changed(*_TO_WRITE, *plies):
                raise ValueError(f"only data sets have {flags}: add --out, or leave them out")
        elif flags := self.changed(*_TO_PRINT):
            raise ValueError(f"without --out only: {flags}; a data set never repeats a position")
        if self.game and (flags := self.changed("split", "shares")):
            raise ValueError(f"--game names one game: leave out {flags}")
        return self


class GamesSettings(GameSourceSettings, FilterSettings, JobSettings, env_prefix="DATA_GAMES_"):
    """Write whole games, each once, in a seeded order: as PGN, or as a JSON list of PGN strings.

    Both are sources of games, too. The same seed gives the same bytes. Training data of whole games are
    written by `rookery data moves --style game-san`.

    Examples:
      rookery data games --elo-min 1800 --count 1000 --out runs/games
      rookery data games --form json --compress --out runs/list
      rookery data games --speed rapid classical --count 100000 --jobs 8 --out runs/slow
      rookery data moves --source runs/slow --style game-san --split all --count 100000 --out runs/sequences
    """

    count: PositiveInt | None = None
    """Number of games. Default: all."""
    out: FolderOrUrl
    """Folder or URL for the games and manifest.json."""
    form: Literal["pgn", "json"] = "pgn"
    """games.pgn, or games.json, a list of strings."""
    compress: bool = False
    """Compress the games with zstd."""


class MovesSettings(GameSourceSettings, ExamSettings, DataSetSettings, JobSettings, env_prefix="DATA_MOVES_"):
    """Write a supervised data set from games. The same seed gives the same bytes.

    The answer to a position is a few candidate moves and the move that was played, or the list of legal
    moves. With --style game-san or game-uci, a line is a whole game, and the answer is all of its moves.

    Examples:
      rookery data moves --count 5000 --out runs/moves
      rookery data moves --source games/*.pgn.zst --count 1000000 --jobs 8 --compress --out runs/moves
      rookery data moves --count 100000 --style fen --legal-share 0 --out runs/fen
      rookery data moves --count 100000 --style game-san --out runs/games
    """

    style: StyleName = "mover-squares"
    """How positions are shown, such as fen; or game-san or game-uci."""
    box: Notation | None = None
    """Notation of the moves in answers. Default: that of the style, uci where it shows no moves."""
    candidates: PositiveInt = 3
    """Candidate moves in an answer."""
    legal_share: Share = 0.4
    """Share of the lines whose answer lists the legal moves."""
    compress: bool = False
    """Write moves.jsonl.zst."""

    @model_validator(mode="after")
    def _games_or_positions(self) -> Self:
        if self.style in GAME_STYLES and (flags := self.changed("exam", "box", "candidates", "legal_share")):
            raise ValueError(f"no effect with --style {self.style}, where a line is a whole game: {flags}")
        return self


class StatsSettings(JobSettings, env_prefix="DATA_STATS_"):
    """Count games by result, rating, time control, variant and ending, and replay a share to count phases.

    Counts positions (Parquet, or JSON lines from `sample`) by phase, rating, ply and number of men. Also
    counts duplicates. Memory use does not depend on the size of the files.

    Examples:
      rookery data stats samples/lichess.pgn.zst --replay 1
      rookery data stats lichess_db_standard_rated_2024-08.pgn.zst --jobs 8
      rookery data stats runs/positions/positions.parquet --json
    """

    files: CliPositionalArg[Several[tuple[PathOrUrl, ...]]]
    """Games or positions: files, folders, URLs, or - for standard input."""
    replay: Share = 0.01
    """Share of the games that is replayed to count phases."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of tables."""


class OverlapSettings(CommandSettings, env_prefix="DATA_OVERLAP_"):
    """Count the positions of exams that are in data sets and archives, mirrored or not.

    Exams and data may be Parquet, JSON, JSON lines, CSV, PGN or EPD, compressed or not. Only data with FENs
    can be searched: prompts that show the board in other words count as rows without a position.

    Examples:
      rookery data overlap samples/puzzles.csv heldout.jsonl --data mine=train.jsonl --out contamination.json
      rookery data overlap wac.epd --data demo=runs/demo --data tiny=models/rook-tiny --out contamination.json
    """

    exams: CliPositionalArg[Several[tuple[PathOrUrl, ...]]]
    """Files with the positions of the exams."""
    data: tuple[NamedPath, ...]
    """NAME=FILE, or NAME=FOLDER of a run (its archive) or a model (the files of its data_manifest.json).
    Repeatable."""
    out: OutputPath
    """JSON with the counts, and the first 1,000 positions."""
