"""The settings of the commands that read an archive, a folder that `rookery serve archive` writes."""

from pydantic import Field, PositiveInt
from pydantic_settings import CliPositionalArg

from chess_datasets.commands.settings.shared import CommandSettings, RewardAddressSettings
from rookery.remote import FolderOrUrl, OutputFile
from rookery.settings import RedisUrl


class ArchiveSettings(CommandSettings):
    """An archive."""

    archive: CliPositionalArg[FolderOrUrl]
    """Folder or URL of the archive."""


class RepublishSettings(ArchiveSettings, env_prefix="DATA_REPUBLISH_"):
    """Add the groups of an archive to the stream of a run that has no rollouts, in their order.

    `rookery replay` does this and trains on them.

    Examples:
      rookery data republish runs/mine/archive --run mine --to again --redis-url redis://127.0.0.1:6379/0
    """

    run: str | None = None
    """Run in the archive. Default: the only one."""
    to: str | None = None
    """Name of the run to add them to. Default: the same."""
    redis_url: RedisUrl
    """Redis of that run."""


class RescoreSettings(ArchiveSettings, RewardAddressSettings, env_prefix="RESCORE_"):
    """Score every answer of an archive again under another scheme, and show how rewards would change.

    Shows the advantages, too.

    Examples:
      rookery rescore runs/archive --scheme best
      rookery rescore s3://bucket/archive --run r1 --scheme accuracy --json
      rookery rescore runs/archive --scheme minmax --reward dns:///reward:50051 --out minmax.parquet
    """

    scheme: str
    """Name of the other scheme, as the reward service knows it."""
    run: str | None = None
    """Only groups of this run. Default: all."""
    limit: PositiveInt | None = None
    """The most groups to score. Default: all."""
    task: str = ""
    """Task of the reward service. Default: the task of each group."""
    nodes: PositiveInt | None = None
    """Nodes per search of the service that is started. Default: as in the archive."""
    json_: bool = Field(default=False, alias="json")
    """Print JSON instead of tables."""
    out: OutputFile | None = None
    """Write every answer with both rewards to this Parquet file."""
