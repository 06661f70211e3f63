"""Settings of the trainer of a run."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from pydantic_settings import SettingsConfigDict

from rookery.hub import identity
from rookery.settings import Port, PresetSettings
from services.trainer.settings.adam import AdamBits, LrSchedule
from services.trainer.settings.device import Devices
from services.trainer.settings.objective import ObjectiveSettings
from services.trainer.settings.scoped import ADAPTER, When

_LEAST_ADAPTERS = 8
"""More than the servers have slots: vLLM reads an evicted adapter again from disk, and dies without it."""


def _auto_is_0(value: object) -> object:
    return 0 if value == "auto" else value


Sharding: TypeAlias = Literal["none", "fsdp2"]


class TrainerSettings(ObjectiveSettings, PresetSettings):
    """Policy gradient on the groups of a run's `traces` stream."""

    model_config = SettingsConfigDict(env_prefix="TRAINER_")
    reading: ClassVar[Mapping[str, When]] = {
        **ObjectiveSettings.reading,
        **ADAPTER,
        "int8_base": When("lora_rank", but=(0,)),
    }

    model: Path
    """Base model, a directory or a Hugging Face id: the one the inference servers were started with."""
    run_dir: Path
    """Receives metrics.jsonl and adapters/policy-v000000 and onwards."""
    inference_urls: str = "http://127.0.0.1:8000"
    """Servers to reload, separated by commas."""
    host: str = "127.0.0.1"
    """Address of probes and metrics."""
    port: Port = 8003
    """Port of probes and metrics."""
    device: Devices = "auto"
    """`cpu`, the index of a GPU, or `auto`; with several processes the indices of theirs, with commas."""
    threads: NonNegativeInt = 0
    """CPU threads; 0 takes half of the cores: vLLM and Stockfish want the others."""

    max_steps: NonNegativeInt = 0
    """Ends the run after so many optimizer steps; 0 goes on."""
    from_version: NonNegativeInt | None = None
    """Go back to this version and train on from it, under the next free number; later ones are given up."""
    rest: bool = False
    """After the last step go on answering probes, for a supervisor that starts again whatever ends."""
    batch_groups: PositiveInt = 32
    """Groups a step; the rollouts' admission must be told the same."""
    max_staleness: NonNegativeInt = 4
    """Groups more versions behind than this are dropped, and counted."""
    lr: PositiveFloat = 1e-3
    """Learning rate after the warm-up."""
    warmup_steps: NonNegativeInt = 5
    """Steps of linear warm-up."""
    lr_schedule: LrSchedule = "constant"
    """What follows: nothing, or a fall to a hundredth until `max_steps`."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""

    lora_rank: NonNegativeInt = 16
    """Rank of the adapter; vLLM must be started with at least this. 0 trains all weights, of a GPT-2."""
    lora_alpha: PositiveInt = 32
    """Scale of the adapter is alpha over rank."""
    lora_targets: str = "all-linear"
    """Modules that get an adapter, with commas; never the head or the embeddings."""
    int8_base: bool = False
    """The base's linear layers in 8 bits: half of the memory, or a quarter on a CPU; needs bitsandbytes."""
    micro_batch_tokens: Annotated[NonNegativeInt, BeforeValidator(_auto_is_0)] = 8192
    """Tokens a forward pass; smaller accumulates more passes, with the same gradient. `auto`, or 0, measures
    what fits into memory."""
    row_tokens: Annotated[NonNegativeInt, BeforeValidator(_auto_is_0)] = 0
    """Most tokens of a prompt and those of its completions that share its work. `auto`, or 0: as many as a
    forward pass has, so that a prompt is computed once."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""

    adam_bits: AdamBits = 32
    """Of Adam's moments; 8 needs bitsandbytes and takes a quarter of their memory."""
    offload: bool = False
    """Keep Adam's moments off the GPU between steps."""
    sharding: Sharding = "none"
    """Of several processes: each has all weights, or `fsdp2`: a part of them."""
    mlflow: bool = False
    """Log to MLflow: to MLFLOW_TRACKING_URI, else to files in mlruns/ beside the run's folder."""
    seed: int = 0
    """Of the adapter's first weights."""
    keep: int = Field(default=20, ge=3)
    """Newest versions kept on disk, at least 8 of adapters, and those that groups may still be of; version 0
    and every hundredth stay for ever."""

    @model_validator(mode="after")
    def _served_adapters_stay(self) -> Self:
        if self.lora_rank and self.keep < _LEAST_ADAPTERS:
            raise ValueError(
                f"--keep {self.keep}: {_LEAST_ADAPTERS} adapters at least, some are being served"
            )
        return self

    @model_validator(mode="after")
    def _schedule_ends(self) -> Self:
        if self.lr_schedule != "constant" and not self.max_steps:
            raise ValueError(f"--lr-schedule {self.lr_schedule} falls until --max-steps: set it")
        return self

    @model_validator(mode="after")
    def _sharded_as_it_can_be(self) -> Self:
        if self.sharding == "none":
            return self
        if not self.micro_batch_tokens:
            raise ValueError("--micro-batch-tokens auto measures one process alone: not with --sharding")
        if self.int8_base:
            raise ValueError(f"--sharding {self.sharding} does not shard integers: not with --int8-base")
        if self.lora_rank == 0 and (self.objective == "ppo" or self.adam_bits == 8 or self.offload):
            raise ValueError(
                "--sharding with --lora-rank 0 shards Adam's moments: not with ppo, --adam-bits 8, --offload"
            )
        return self

    @property
    def adapters_dir(self) -> Path:
        """Where versions are committed; the inference servers' adapter root."""
        return (self.run_dir / "adapters").absolute()

    @cached_property
    def base_identity(self) -> str:
        """The base model by name and content, as servers compare it.

        Read once: what is written there later is not what this process trains on.
        """
        return identity(str(self.model))

    def fingerprint(self) -> dict[str, str]:
        """What must not change when a run resumes."""
        fields = ("lora_rank", "lora_alpha", "lora_targets", "batch_groups", "adam_bits")
        own = {"model": self.base_identity, **{name: str(getattr(self, name)) for name in fields}}
        critic = {"critic": "value head"} if self.objective == "ppo" else {}
        return {**own, **critic, **({"base": "int8"} if self.int8_base else {})}
