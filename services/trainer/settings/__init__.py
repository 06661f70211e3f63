"""Settings of the trainer's commands. Nothing here imports torch, so that `--help` is fast."""

from services.trainer.settings.fitting import FitSettings
from services.trainer.settings.objective import (
    Baseline,
    KlKind,
    KlSchedule,
    LossWeights,
    ObjectiveName,
    ObjectiveSettings,
)
from services.trainer.settings.preference import (
    DpoSettings,
    PairSettings,
    RewardModelSettings,
    RewardServerSettings,
)
from services.trainer.settings.run import TrainerSettings
from services.trainer.settings.sft import SftSettings
from services.trainer.settings.tiny import TinySettings

__all__ = [
    "Baseline",
    "DpoSettings",
    "FitSettings",
    "KlKind",
    "KlSchedule",
    "LossWeights",
    "ObjectiveName",
    "ObjectiveSettings",
    "PairSettings",
    "RewardModelSettings",
    "RewardServerSettings",
    "SftSettings",
    "TinySettings",
    "TrainerSettings",
]
