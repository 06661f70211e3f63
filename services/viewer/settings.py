"""Settings of the viewer: flags, `VIEWER_...` variables or the `[viewer]` table of a TOML file."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from rookery.access import AccessSettings
from rookery.settings import Port, RedisUrl


class ViewerSettings(AccessSettings):
    """Serves a web page over the runs of a folder, while they train and afterwards.

    The page changes nothing unless a token is set: then whoever has the token can replay dead letters and ask
    the policy. It calls the other services with their own token (`--token-file`).
    """

    model_config = SettingsConfigDict(env_prefix="VIEWER_")

    runs_dir: Path = Path("runs")
    """Folder with one folder for each run, as `rookery up` writes them."""
    archive: Path | None = None
    """Folder of the archive, if it is not `archive` in the folder of each run."""
    redis_url: RedisUrl = ""
    """Redis with the runs' streams. Default: as the run's endpoints.json says."""
    inference_url: str = ""
    """Server of the policy, for questions and games. Default: as the run's endpoints.json says."""
    reward_url: str = ""
    """HTTP address of the reward service, for verdicts. Default: as the run's endpoints.json says."""
    token: str = ""
    """Allows whoever sends it to replay dead letters and to ask the policy. Default: nobody may."""
    memory_mb: int = Field(default=512, ge=64)
    """MiB of memory for the index; what exceeds it is on disk, in a temporary folder."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8010
    """HTTP port; 0 picks a free one."""
