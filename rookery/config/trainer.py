"""Settings of the trainer of a run, and of the search for the largest batch."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from rookery.access import AccessSettings
from rookery.config.conditions import (
    ADAPTER_CONDITIONS,
    AdapterSettings,
    BaseBits,
    LrSchedule,
    MemorySettings,
    OptimiserSettings,
    When,
    auto_is_0,
)
from rookery.config.objective import ObjectiveSettings
from rookery.devices import Devices
from rookery.errors import SetupError
from rookery.hub import identity, is_gpt2, tensor_names
from rookery.remote import FolderPath, PathOrUrl
from rookery.replicas import split_urls
from rookery.settings import Port, PresetSettings, ReportSettings, RunSettings, Settings

_LEAST_ADAPTERS = 8
"""More than the servers' adapter slots. vLLM reads evicted adapters from disk again, and crashes without
them."""


_UNMEASURED_TOKENS = 8192
"""Tokens of a forward pass where `auto` cannot measure them."""


Sharding: TypeAlias = Literal["none", "fsdp2"]


class TrainerOptimiserSettings(OptimiserSettings, help_group="optimiser"):
    """AdamW and the schedule of its learning rate."""

    lr_schedule: LrSchedule = "constant"
    """Schedule after the warm-up: constant, or a decrease to a hundredth until --max-steps."""


class TrainerMemorySettings(MemorySettings, help_group="memory"):
    """How a step is split, and what is kept in memory."""

    row_tokens: Annotated[NonNegativeInt, BeforeValidator(auto_is_0)] = 0
    """Maximum tokens of a row: a prompt with completions that share its computation. `auto`, or 0: as many as
    a forward pass has, so that a prompt is computed once."""
    base_bits: BaseBits | None = None
    """Keep the base's linear layers in 8 bits (LLM.int8()) or 4 (NF4, as QLoRA does): half or a quarter of
    bf16's memory. Needs bitsandbytes."""
    offload: bool = False
    """Keep Adam's moments off the GPU between steps."""
    compile: bool = False
    """torch.compile the model's layers, except attention. The first step then takes a minute longer."""


class DistributedSettings(Settings, help_group="distributed"):
    """Devices and processes."""

    device: Devices = "auto"
    """`cpu`, the index of a GPU, or `auto`. Several, such as 0,1,2,3: a process for each, all on this
    machine."""
    threads: NonNegativeInt = 0
    """CPU threads. 0 uses half of the cores and leaves the others to vLLM and Stockfish."""
    sharding: Sharding = "none"
    """With several processes, each has all weights (`none`) or a part of them (`fsdp2`)."""


class TrainerSettings(
    DistributedSettings,
    TrainerMemorySettings,
    AdapterSettings,
    TrainerOptimiserSettings,
    ObjectiveSettings,
    RunSettings,
    PresetSettings,
    ReportSettings,
    AccessSettings,
    help_group="run",
    env_prefix="TRAINER_",
):
    """Train a policy by policy gradient on the groups of a run's `traces` stream."""

    conditions: ClassVar[Mapping[str, When]] = {
        **ObjectiveSettings.conditions,
        **ADAPTER_CONDITIONS,
        "base_bits": When("lora_rank", but=(0,)),
    }

    model: PathOrUrl
    """Base model, as of the inference servers: a directory, a Hugging Face id, or the URL of a folder."""
    run_dir: FolderPath
    """Folder for metrics.jsonl and the versions (adapters/policy-v000000, ...)."""
    inference_urls: str = "http://127.0.0.1:8000"
    """Inference servers that load new versions, separated by commas. `dns:///NAME:PORT` stands for all
    addresses of the name, which is looked up again every few seconds."""
    adapter_store: PathOrUrl = Field(default="", pattern=r"^$|^[a-z0-9]+://.+")
    """Copy each version to this folder of a store, such as s3://bucket/adapters, for servers that do not
    share a disk with the trainer. Without it, they can download versions from the trainer over HTTP."""
    sleep_inference: bool = False
    """Let the inference servers, started with --sleep, free their memory during each step: for one GPU that
    serves and trains."""
    host: str = "127.0.0.1"
    """Address of probes and metrics."""
    port: Port = 8003
    """Port of probes and metrics."""

    max_steps: NonNegativeInt = 0
    """Stop after this many optimizer steps. 0 for no limit."""
    from_version: NonNegativeInt | None = None
    """Go back to this version and continue from it under the next free number. Later ones are discarded."""
    rest: bool = False
    """Keep answering probes after the last step, for supervisors that restart processes that end."""
    batch_groups: PositiveInt = 32
    """Groups per step. The rollouts must have the same value."""
    max_staleness: NonNegativeInt = 4
    """Groups that are more versions behind than this are dropped, and counted."""

    ratios_mb: NonNegativeInt = 64
    """MiB of importance ratios and advantages to keep in the run's folder, for the viewer: those of the
    tokens that the newest steps were trained on. About 4 bytes a token. 0: none."""
    store: PathOrUrl = Field(default="", pattern=r"^$|^[a-z0-9]+://.+")
    """URL, of this run alone, for a copy of the newest version when the training ends, such as s3://bucket/runs/my-run."""
    lora_rank: NonNegativeInt = 16
    """Rank of the adapter. vLLM must be started with at least this rank. 0 trains all weights of a GPT-2."""
    allowed_models: str = ""
    """Base models that may be used, by name or by digest (sha256:...), separated by commas. Default: any.
    ROOKERY_ALLOWED_MODELS sets it for server and trainer."""
    seed: int = 0
    """Seed of the adapter's initial weights."""
    keep: int = Field(default=20, ge=3)
    """Number of newest versions to keep on disk (at least 8 if they are adapters). More are kept if groups
    may still be of them. Version 0 and every hundredth version are always kept."""

    @classmethod
    def dependent_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the objective, and a number of tokens if `auto` cannot measure it."""
        alone = values.get("sharding", "none") == "none" and not values.get("sleep_inference", False)
        measured = {} if alone else {"micro_batch_tokens": _UNMEASURED_TOKENS}
        return {**super().dependent_defaults(values), **measured}

    @field_validator("inference_urls")
    @classmethod
    def _valid_urls(cls, urls: str) -> str:
        split_urls(urls)
        return urls

    @model_validator(mode="after")
    def _settings_fit_together(self) -> Self:
        measures, sharded = not self.micro_batch_tokens, self.sharding != "none"
        uncompiled = {
            "gradient_checkpointing": self.gradient_checkpointing,
            f"base_bits={self.base_bits}": self.base_bits is not None,
            f"sharding={self.sharding}": sharded,
        }
        excluded = " or ".join(setting for setting, is_set in uncompiled.items() if is_set)
        unsharded = self.objective == "ppo" or self.adam_bits == 8 or self.offload
        mistakes = {
            f"keep={self.keep}: at least {_LEAST_ADAPTERS} adapters, because servers still read them": (
                self.lora_rank and self.keep < _LEAST_ADAPTERS
            ),
            f"sleep_inference is for one GPU, not for device={self.device}": (
                self.sleep_inference and "," in self.device
            ),
            "micro_batch_tokens=auto measures while the server has its memory: not with sleep_inference": (
                self.sleep_inference and measures
            ),
            f"lr_schedule={self.lr_schedule} falls until max_steps, which is not set (`up`: --steps)": (
                self.lr_schedule != "constant" and not self.max_steps
            ),
            f"compile cannot be used with {excluded}": self.compile and excluded,
            "micro_batch_tokens=auto measures a single process: it cannot be used with sharding": (
                sharded and measures
            ),
            f"sharding={self.sharding} cannot shard the integers of base_bits={self.base_bits}": (
                sharded and self.base_bits
            ),
            "sharding with lora_rank=0 does not support objective=ppo, adam_bits=8 or offload": (
                sharded and self.lora_rank == 0 and unsharded
            ),
        }
        if made := [mistake for mistake, is_made in mistakes.items() if is_made]:
            raise ValueError("; ".join(made))
        return self

    def check_model(self, folder: Path) -> None:
        """Checks that these settings can train the base model in a folder, without loading it. Raises
        `SetupError` if they cannot."""
        if not self.lora_rank and self.sharding != "none" and not is_gpt2(folder):
            raise SetupError(f"sharding with lora_rank=0 is for a GPT-2, and {self.model} is not a GPT-2")
        if self.lora_rank and self.base_bits and is_gpt2(folder):
            raise SetupError("base_bits: a GPT-2 is served merged, which needs the base's own weights")
        if not self.lora_rank or self.lora_targets == "all-linear":
            return
        names = {f".{name.removesuffix('.weight')}" for name in tensor_names(folder)}
        for target in self.lora_targets.split(","):
            if names and not any(name.endswith(f".{target}") for name in names):
                raise SetupError(f"lora_targets={self.lora_targets}: {self.model} has no layer {target!r}")

    @property
    def adapters_dir(self) -> Path:
        """The folder of the committed versions, which is the inference servers' adapter root."""
        return (self.run_dir / "adapters").absolute()

    @cached_property
    def base_identity(self) -> str:
        """The base model by name and content, as servers compare it. Computed once, because this process does
        not train on what is written there later."""
        return identity(str(self.model))

    def fingerprint(self) -> dict[str, str]:
        """The settings that must not change when a run is resumed."""
        fields = ("lora_rank", "lora_alpha", "lora_targets", "batch_groups", "adam_bits")
        settings = {"model": self.base_identity, **{name: str(getattr(self, name)) for name in fields}}
        critic = {"critic": "value head"} if self.objective == "ppo" else {}
        base = {"base": f"int{self.base_bits}"} if self.base_bits else {}
        return {**settings, **critic, **base}


class AutobatchSettings(TrainerSettings, env_prefix="AUTOBATCH_", help_group="autobatch"):
    """Measure which batch of positions x completions fits into memory in one forward pass.

    Runs real steps of the model with batches from (2, G) upwards, and stops near half of the free memory, or
    near 85% of a GPU's.
    Accepts all settings of the trainer, and ignores those that do not affect memory.
    """

    run_dir: FolderPath = Path()
    """Folder for memory_profiles.json."""
    group_size: int = Field(default=4, ge=2)
    """Completions per position."""
    prompt_tokens: PositiveInt = 128
    """Length of a prompt, in tokens."""
    completion_tokens: PositiveInt = 128
    """Length of a completion, in tokens."""
    most_positions: PositiveInt = 128
    """Largest number of positions to try."""
