"""Settings of the viewer: flags, `VIEWER_...` variables or the `[viewer]` table of a TOML file."""

from pydantic import Field

from rookery.access import AccessSettings
from rookery.remote import FolderOrUrl
from rookery.settings import HttpUrl, Port, RedisUrl


class ViewerSettings(AccessSettings, env_prefix="VIEWER_"):
    """Serves a web page over the runs of a folder, while they train and afterwards.

    Everybody who reaches the page can read. Without a token (ROOKERY_TOKEN or --token-file) it changes
    nothing; with one, whoever sends it can replay dead letters and ask the policy. The viewer calls the other
    services with it.
    """

    runs_dir: FolderOrUrl = "runs"
    """Folder with one folder for each run, as `rookery up` writes them; or its URL, as s3://bucket/runs."""
    archive: FolderOrUrl | None = None
    """Folder or URL of the archive, if it is not `archive` in the folder of each run."""
    redis_url: RedisUrl = ""
    """Redis with the runs' streams. Default: as the run's endpoints.json says."""
    inference_url: HttpUrl = ""
    """Server of the policy, for questions and games. Default: as the run's endpoints.json says."""
    reward_url: HttpUrl = ""
    """HTTP address of the reward service, for verdicts. Default: as the run's endpoints.json says."""
    memory_mb: int = Field(default=512, ge=64)
    """MiB of memory for the index; what exceeds it is on disk, in a temporary folder."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8010
    """HTTP port; 0 picks a free one."""
