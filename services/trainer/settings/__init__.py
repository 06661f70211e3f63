"""Settings of the trainer's commands. Nothing here imports torch, so that `--help` is fast.

A command's settings inherit from groups such as `KlSettings`, which are the groups of `--help`, too.
"""

from services.trainer.settings.finetune import (
    DpoSettings,
    FinetuneSettings,
    PairSettings,
    RewardModelSettings,
    RewardServerSettings,
    SftSettings,
)
from services.trainer.settings.objective import (
    KL_ALIASES,
    Baseline,
    KlKind,
    KlSchedule,
    KlSettings,
    LossWeights,
    ObjectiveName,
    ObjectiveSettings,
    PpoSettings,
)
from services.trainer.settings.shared import LrSchedule
from services.trainer.settings.trainer import AutobatchSettings, Sharding, TrainerSettings

__all__ = [
    "KL_ALIASES",
    "AutobatchSettings",
    "Baseline",
    "DpoSettings",
    "FinetuneSettings",
    "KlKind",
    "KlSchedule",
    "KlSettings",
    "LossWeights",
    "LrSchedule",
    "ObjectiveName",
    "ObjectiveSettings",
    "PairSettings",
    "PpoSettings",
    "RewardModelSettings",
    "RewardServerSettings",
    "SftSettings",
    "Sharding",
    "TrainerSettings",
]
