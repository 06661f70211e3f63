"""The settings of the archiver."""

from pydantic import Field, PositiveFloat, PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.settings import Port, RunSettings


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
