"""Settings of `sft`, `reward-model` and `dpo`, and of the reward model's server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from rookery.access import AccessSettings
from rookery.config.conditions import (
    ADAPTER_CONDITIONS,
    AdapterSettings,
    ConditionalSettings,
    MemorySettings,
    OptimiserSettings,
    When,
)
from rookery.devices import Device, Devices
from rookery.prompt import StyleName
from rookery.remote import FolderPath, PathOrUrl
from rookery.settings import Port, PresetSettings, ReportSettings

ADAPTER_LR = 2e-4
"""The default learning rate of an adapter: ten times that of all weights (Schulman et al., LoRA Without
Regret, 2025)."""


class FinetuneOptimiserSettings(OptimiserSettings, help_group="optimiser"):
    """AdamW and its learning rate."""

    lr: PositiveFloat = 2e-5
    """Peak learning rate. The schedule is a linear warm-up, then cosine. The default is for a pretrained
    model: 2e-5 if all weights train, 2e-4 for an adapter."""
    warmup_steps: NonNegativeInt = 100
    """Steps of linear warm-up, a tenth of --steps if these are fewer."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay of AdamW."""


class FinetuneSettings(
    ConditionalSettings,
    MemorySettings,
    AdapterSettings,
    FinetuneOptimiserSettings,
    PresetSettings,
    ReportSettings,
    help_group="run",
):
    """Training on a file of examples."""

    conditions: ClassVar[Mapping[str, When]] = ADAPTER_CONDITIONS

    dependent: ClassVar[frozenset[str]] = frozenset({"lr"})

    model: PathOrUrl
    """Model to start from: a directory, a Hugging Face id or a URL such as s3://bucket/sft/model."""
    data: PathOrUrl
    """Training data."""
    out: FolderPath
    """Folder for model/, metrics.jsonl and the checkpoint."""
    store: PathOrUrl = Field(default="", pattern=r"^$|^[a-z0-9]+://.+")
    """URL, of this run alone, for a copy of the result (model/, adapters/, metrics and reports), such as s3://bucket/sft."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    batch_size: PositiveInt = 128
    """Examples per step."""
    max_length: PositiveInt = 384
    """Maximum length of an example, in tokens."""
    eval_every: PositiveInt = 500
    """Steps between evaluations on held-out examples. The last step is always evaluated."""
    eval_examples: PositiveInt = 1024
    """Maximum number of held-out examples per evaluation."""
    seed: int = 0
    """Seed of the order of the examples and of new weights."""
    compile: bool = False
    """torch.compile the loss: for rook-tiny 1.2 times as fast on a CPU. Compiling takes 1 to 2 minutes."""
    device: Devices = "auto"
    """`cpu`, the index of a GPU, or `auto`. Several, such as 0,1,2,3: a process for each, all on this
    machine."""
    threads: NonNegativeInt = 0
    """CPU threads. 0 uses torch's default."""
    save_every: PositiveInt = 500
    """Steps between checkpoints."""
    save_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Data type of the exported weights. bfloat16 rounds what was learnt."""

    @classmethod
    def dependent_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The learning rate of an adapter."""
        return {} if str(values.get("lora_rank", 0)) == "0" else {"lr": ADAPTER_LR}

    def fingerprint(self) -> dict[str, str]:
        """The settings that must not change when a run is resumed."""
        free = {"out", "device", "threads", "save_every", "save_dtype", "eval_every", "eval_examples"}
        free |= {"preset", "dry_run", "mlflow", "report_to", "store", "style"}
        free |= {"data", "eval_data"}  # compared by content: see `finetune.output`
        return {
            # Different spellings of the same path give the same text.
            name: str(Path(value).resolve() if name == "model" and Path(value).exists() else value)
            for name, value in self.model_dump(exclude=free).items()
        }


class SftSettings(FinetuneSettings, env_prefix="SFT_", help_group="sft"):
    """Supervised fine-tuning on the last answer of each chat."""

    conditions: ClassVar[Mapping[str, When]] = {
        **FinetuneSettings.conditions,
        "eval_every": When("eval_data", but=(None,)),
        "eval_examples": When("eval_data", but=(None,)),
        "attention": When("row_tokens", (0,)),
        "adapter": When("lora_rank", but=(0,)),
    }

    adapter: PathOrUrl = ""
    """Run of the same base whose adapter is trained further: a name, folder or URL, and the version after
    an @."""
    data: PathOrUrl
    """JSON lines or Parquet with messages, of which the last is the assistant's; or with prompt and answer,
    chosen or completion. A path, or s3://bucket/key."""
    eval_data: PathOrUrl | None = None
    """Examples in the same format for evaluation. Their loss and perplexity are written to metrics.jsonl."""
    style: StyleName | None = None
    """Prompt style of the data, for the model's manifest. Default: that of the data's manifest or, if it
    names none, of the base model's. Players are asked in it."""
    alternatives_coefficient: NonNegativeFloat = 0.0
    """Weight of a second loss: -log of the probability of all alternatives of a token together. Cross-entropy
    teaches how likely each of them is; this, that the answer is one of them, such as a legal move."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """sdpa: torch's fused kernel. eager: plain matrix products, which are faster on a CPU for short examples,
    but need memory proportional to the square of the length."""


class PairSettings(FinetuneSettings, help_group="pairs"):
    """Training on preference pairs."""

    data: PathOrUrl
    """pairs.parquet of `rookery data pairs`, or JSON lines with prompt, chosen and rejected. A path, or
    s3://bucket/key."""
    held_out: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the games (or of the positions, if no games are named) that is used only for evaluation."""
    steps: PositiveInt = 1000
    """Optimizer steps."""
    batch_size: PositiveInt = 64
    """Pairs per step."""
    eval_every: PositiveInt = 200
    """Steps between evaluations on held-out pairs. The last step is always evaluated."""


class RewardModelSettings(PairSettings, env_prefix="REWARD_MODEL_", help_group="reward model"):
    """Train a reward model: it gives the chosen answer of a pair a higher reward than the rejected one."""

    margin: NonNegativeFloat = 0.0
    """Lead of the chosen answer required for a gap of 1 in win probability. 0 keeps the model calibrated."""
    save_dtype: Literal["bfloat16", "float32"] = "float32"
    """Data type of the exported weights."""


class DpoSettings(PairSettings, env_prefix="DPO_", help_group="dpo"):
    """Train an adapter by direct preference optimisation (DPO). The base model is the reference."""

    lr: PositiveFloat = ADAPTER_LR
    """Peak learning rate. The schedule is a linear warm-up, then cosine."""
    lora_rank: PositiveInt = 16
    """Rank of the adapter. The model without the adapter is the reference."""
    beta: PositiveFloat = 0.1
    """Weight of the KL constraint to the reference. Small values let the policy move far away."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """Assumed share of pairs whose chosen and rejected answers are swapped."""


class RewardServerSettings(AccessSettings, env_prefix="REWARD_SERVER_"):
    """Serve a reward model over HTTP."""

    model: PathOrUrl
    """Directory that `rookery reward-model` wrote, or its URL, such as s3://bucket/reward/model."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8007
    """HTTP port; 0 picks a free one."""
    rows: PositiveInt = 8
    """Answers per forward pass. Every pass is padded to this number, so that an answer's score does not
    depend on the other answers in the pass."""
    queue: PositiveInt = 4096
    """Maximum number of waiting answers. Beyond it, callers get status 503 and retry later."""
    device: Device = "auto"
    """`cpu`, the index of a GPU, or `auto`."""
    threads: NonNegativeInt = 0
    """CPU threads. 0 uses torch's default."""
