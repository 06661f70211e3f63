"""Settings of the inference server. Light: neither vLLM nor torch, so that `--help` answers at once.

The launcher reads them from flags, environment and TOML, and hands all of them to vLLM's process as
`INFERENCE_*` variables (plus `ROOKERY_REDIS_URL` and `ROOKERY_RUN`), where the plugin reads them again.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt
from pydantic_settings import SettingsConfigDict

from rookery.errors import SetupError
from rookery.hub import model_folder
from rookery.settings import Port, RunSettings
from services.inference.server.sampling import SamplingName

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


class ServerSettings(RunSettings):
    """One vLLM server and the versions it may load."""

    model_config = SettingsConfigDict(env_prefix="INFERENCE_")

    model: str = "models/rook-tiny"
    """Base model: a directory, or a Hugging Face id."""
    host: str = "0.0.0.0"
    """Address to listen on."""
    port: Port = 8000
    """HTTP port; 0 picks a free one."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|\d+)$")
    """cpu, the index of one GPU, or auto: what the installed vLLM was built for."""
    adapter_root: Path = Path("runs")
    """Adapters outside this directory are refused."""
    follow: bool = True
    """Read the run's `policy` record from Redis and load what it names; without, only /reload does."""
    full_weights: bool = False
    """Versions are whole models and not LoRA adapters, which vLLM has not for GPT-2: all weights are
    swapped, after the requests in work."""
    max_loras: int = Field(default=4, ge=2)
    """Versions in one batch; one slot is kept for the next, so the newest max_loras - 1 stay served."""
    max_lora_rank: Annotated[Literal[8, 16, 32, 64, 128, 256], BeforeValidator(int)] = 16
    """Largest rank accepted. On CPU every request pays for this many, whatever its adapter's rank."""
    sampling: SamplingName = "qwen3-thinking"
    """Sampling parameters of requests that name none."""
    max_model_len: PositiveInt | None = None
    """Prompt and completion together, in tokens; by default the model's own limit."""
    max_num_seqs: PositiveInt = 256
    """Completions generated at a time; further ones wait."""
    kv_cache_gib: PositiveInt = 1
    """Key-value cache on CPU; a GPU gives what is free."""

    @property
    def local_model(self) -> Path | None:
        """The model's directory, None for a Hugging Face id.

        Raises:
            SetupError: it is neither.
        """
        path = Path(self.model)
        if (path / "config.json").is_file():
            return path.resolve()
        if path.exists() or path.parent.is_dir() or not _HUB_ID.fullmatch(self.model):
            raise SetupError(
                f"{self.model!r} is no model directory (config.json is missing) and no Hugging Face id: "
                "choose another with --model"
            )
        return None

    @property
    def whole_model(self) -> Path:
        """The base model's directory. Of a whole model every version must have its tensors.

        Raises:
            SetupError: it is a Hugging Face id of which nothing is here.
        """
        return self.local_model or model_folder(self.model)

    @property
    def served_name(self) -> str:
        """The base model's name in the API: the directory's own name, or the Hugging Face id."""
        local = self.local_model
        return local.name if local else self.model

    @property
    def base_names(self) -> frozenset[str]:
        """Every name under which an adapter may speak of this base model."""
        local = self.local_model
        return frozenset({self.model, self.served_name} | ({str(local)} if local else set()))
