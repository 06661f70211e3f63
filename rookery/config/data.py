"""Settings of the data service, the feed and the archiver.

The settings that determine the positions are shared: the feed also reads `DATA_SOURCES`, `DATA_SPLIT`, ...
unless the `FEED_...` variable is set. Service and feed therefore use the same order by default.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_settings import EnvSettingsSource, PydanticBaseSettingsSource

from rookery.access import AccessSettings
from rookery.episodes import EpisodeMix
from rookery.remote import FolderOrUrl, PathsOrUrls
from rookery.settings import Port, PresetSettings, RunSettings, Settings
from rookery.trace import Split

SAMPLE = "samples/lichess.pgn.zst"
"""The games that come with the repository."""

GENERATED = "generated"
"""The one source of the feed that is not a file."""

LINE_FILES = (
    *(f"{kind}{packed}" for kind in (".txt", ".jsonl") for packed in ("", ".zst", ".gz")),
    ".parquet",
)
"""How the names of files with RookWorld's lines end."""


class PositionSettings(Settings, env_prefix="DATA_"):
    """The settings that determine the positions and their order."""

    sources: PathsOrUrls = SAMPLE
    """Files of games (.pgn, .zst, .gz, .bz2), folders, patterns or URLs, separated by commas."""
    split: Split = "train"
    """Games to draw from: train, heldout (a twentieth, by a hash of the moves) or all."""
    seed: int = Field(default=0, ge=0, lt=1 << 64)
    """Determines the order of the positions if a request names no seed."""
    opening_share: float = Field(default=0.2, ge=0)
    """Weight of openings: the first twelve moves of a game."""
    middlegame_share: float = Field(default=0.6, ge=0)
    """Weight of middlegames."""
    endgame_share: float = Field(default=0.2, ge=0)
    """Weight of endgames: at most six pieces besides kings and pawns."""

    @field_validator("endgame_share")
    @classmethod
    def _some_share(cls, share: float, info: ValidationInfo) -> float:
        if share + sum(info.data.get(f"{phase}_share", 1.0) for phase in ("opening", "middlegame")) == 0:
            raise ValueError("one of the three shares must be positive")
        return share

    @property
    def shares(self) -> tuple[float, float, float]:
        """The weights of openings, middlegames and endgames."""
        return self.opening_share, self.middlegame_share, self.endgame_share


class DataSettings(PositionSettings, AccessSettings, env_prefix="DATA_"):
    """Serves positions, games and prompts."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8001
    """HTTP port; 0 picks a free one."""
    grpc_port: Port = 50052
    """gRPC port; 0 picks a free one."""


class DataEnvironment(EnvSettingsSource):
    """The `DATA_...` variables, which the feed reads too."""


class FeedSettings(PositionSettings, RunSettings, PresetSettings, AccessSettings, env_prefix="FEED_"):
    """Keeps the `positions` stream of a run filled."""

    task: Literal["move", "rookworld"] = "move"
    """Task of the positions: move, or rookworld for a mix of P: and A: lines."""
    episode: EpisodeMix = "move"
    """What is done with positions: `move`, `tools` or `game`, with options (`game,opponent=engine`), or a
    mix by shares (`0.7*move + 0.3*game,plies=40`)."""
    sources: PathsOrUrls = SAMPLE
    """Files of games (.pgn, .zst, .gz, .bz2), folders, patterns or URLs, separated by commas. Or `generated`:
    positions of openings and random moves. Or, for rookworld, a file of P: and A: lines (.txt, .jsonl,
    .parquet), whose answers are the targets."""
    max_positions: NonNegativeInt = 0
    """Draw so many different positions, and feed them again and again. 0: ever new ones."""
    targets: bool = True
    """Judge answers to a file of lines by the answers of the file. Otherwise by the engine and the rules."""
    state_share: float = Field(default=0.2, ge=0, le=1)
    """Share of A: lines of the task rookworld."""
    illegal_share: float = Field(default=0.05, ge=0, le=1)
    """Share of illegal moves in A: lines."""
    ending_share: float = Field(default=0.5, ge=0, le=1)
    """Share of legal moves in A: lines that end the game, where a move can."""
    mate_share: float = Field(default=0.0, ge=0, le=1)
    """Share of positions, of any phase, in which the side to move can mate at once. Of others, 1% are."""
    depth: PositiveInt = 256
    """Positions in the stream, delivered or not, at which the feed waits."""
    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8005
    """Port of the probes and metrics; 0 picks a free one."""

    @property
    def has_lines(self) -> bool:
        """Whether the source is a file of P: and A: lines, rather than games."""
        return self.task == "rookworld" and self.sources.endswith(LINE_FILES)

    @property
    def mixes_lines(self) -> bool:
        """Whether the feed makes RookWorld's P: and A: lines of the positions."""
        return self.task == "rookworld" and not self.has_lines

    def unread(self) -> Mapping[str, str]:
        """`mate_share` has no effect without games."""
        games = self.sources != GENERATED and not self.has_lines
        return {} if games else {"mate_share": f"sources = {self.sources!r}"}

    @classmethod
    def weakest_sources(cls) -> tuple[PydanticBaseSettingsSource, ...]:
        """The `DATA_...` variables, for the settings of positions."""
        return (DataEnvironment(PositionSettings, env_prefix="DATA_"),)


class ArchiverSettings(RunSettings, AccessSettings, env_prefix="ARCHIVE_"):
    """Stores every group of a run in Parquet files, on disk or in a bucket.

    The usual variables give access to S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, ...
    """

    out: FolderOrUrl = "runs/archive"
    """Folder or URL of the archive, such as s3://bucket/archive. Runs can share it."""
    file_groups: PositiveInt = 256
    """The most groups in a file."""
    file_mb: PositiveInt = 64
    """The most megabytes of groups in a file, which the archiver holds in memory."""
    file_age_s: PositiveFloat = 60.0
    """The longest time from a group's arrival to its file, in seconds."""
    keep: PositiveInt = 1024
    """Acknowledged groups that Redis keeps while no archiver runs. Further ones are missed."""
    consumer: str = Field(default="archive", pattern=r"^[A-Za-z0-9._-]+$")
    """Stable name of this process, which resumes with the entries that it held when it last ended."""
    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8006
    """Port of the probes and metrics; 0 picks a free one."""
