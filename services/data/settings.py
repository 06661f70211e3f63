"""Settings of the data service, its feed and its commands.

The settings that determine the positions are shared: the feed also reads `DATA_SOURCES`, `DATA_SPLIT`, ...
unless the `FEED_...` variable is set. Service and feed therefore use the same order by default.
"""

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rookery.errors import SetupError
from rookery.settings import Port, RunSettings, Settings
from services.data.pgn.games import Split
from services.data.pgn.sources import SAMPLE, find_sources
from services.data.positions.recipe import Shares
from services.data.tasks.rookworld import RookworldMix


class PositionSettings(Settings):
    """What decides which positions there are, and their order."""

    model_config = SettingsConfigDict(env_prefix="DATA_")

    sources: str = SAMPLE
    """Files of games (.pgn, .zst, .gz, .bz2), folders, patterns or URLs, separated by commas."""
    split: Split = "train"
    """Games to draw from: train, heldout (a twentieth, by a hash of the moves) or all."""
    seed: int = Field(default=0, ge=0, lt=1 << 64)
    """Order of the positions when a request names none."""
    opening_share: float = Field(default=0.2, ge=0)
    """Weight of the first twelve moves among the positions."""
    middlegame_share: float = Field(default=0.6, ge=0)
    """Weight of what is neither opening nor endgame."""
    endgame_share: float = Field(default=0.2, ge=0)
    """Weight of positions with at most six pieces besides kings and pawns."""

    @field_validator("endgame_share")
    @classmethod
    def _some_share(cls, share: float, info: ValidationInfo) -> float:
        if share + sum(info.data.get(f"{phase}_share", 1.0) for phase in ("opening", "middlegame")) == 0:
            raise ValueError("one of the three shares must be positive")
        return share

    @property
    def shares(self) -> Shares:
        """The three weights."""
        return Shares(self.opening_share, self.middlegame_share, self.endgame_share)

    @property
    def paths(self) -> list[str]:
        """The files that `sources` names, sorted within each pattern.

        Raises:
            SetupError: a name or pattern matches nothing.
        """
        try:
            return find_sources(self.sources.split(","))
        except SetupError as error:
            raise SetupError(f"{error}: set --sources (DATA_SOURCES)") from error


class DataSettings(PositionSettings):
    """Serves positions, games and prompts. `python -m services.data help` lists the other commands."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8001
    """HTTP port; 0 picks a free one."""
    grpc_port: Port = 50052
    """gRPC port; 0 picks a free one."""


class FeedSettings(PositionSettings, RunSettings):
    """Keeps the `positions` stream of a run topped up."""

    model_config = SettingsConfigDict(env_prefix="FEED_")

    task: Literal["move", "rookworld"] = "move"
    """What is asked about the positions: a move, or RookWorld's lines, P: and A: mixed."""
    state_share: float = Field(default=0.2, ge=0, le=1)
    """A: lines of RookWorld's."""
    illegal_share: float = Field(default=0.05, ge=0, le=1)
    """Moves of A: lines that are illegal."""
    ending_share: float = Field(default=0.5, ge=0, le=1)
    """Legal moves of A: lines that end the game, where one can."""
    depth: PositiveInt = 256
    """Positions in the stream, taken or not, beyond which the feed waits."""
    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8005
    """Port of the probes and metrics; 0 picks a free one."""

    @property
    def mix(self) -> RookworldMix | None:
        """The shares of RookWorld's lines, or None if the task is `move`."""
        if self.task == "move":
            return None
        return RookworldMix(self.state_share, self.illegal_share, self.ending_share)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Falls back on the `DATA_...` variables for the settings of positions."""
        own = super().settings_customise_sources(
            settings_cls, init_settings, env_settings, dotenv_settings, file_secret_settings
        )
        return (*own, EnvSettingsSource(PositionSettings, env_prefix="DATA_"))


class ArchiverSettings(RunSettings):
    """Keeps every group of a run in Parquet files, here or in a bucket.

    S3 is found by the usual variables: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, ...
    """

    model_config = SettingsConfigDict(env_prefix="ARCHIVE_")

    out: str = "runs/archive"
    """Folder of the archive, or its URL, such as s3://bucket/archive; runs share it."""
    file_groups: PositiveInt = 256
    """Groups of a file, at most."""
    file_mb: PositiveInt = 64
    """Size of a file's groups on the wire, at most: what the archiver holds in memory."""
    file_age_s: PositiveFloat = 60.0
    """Longest time from a group's arrival to its file."""
    keep: PositiveInt = 1024
    """Settled groups that Redis keeps for an archiver that is away; what comes after them is missed."""
    consumer: str = Field(default="archive", pattern=r"^[A-Za-z0-9._-]+$")
    """Stable name of this process: it takes up what it held when it last died."""
    host: str = "127.0.0.1"
    """Address of the probes and metrics."""
    port: Port = 8006
    """Port of the probes and metrics; 0 picks a free one."""
