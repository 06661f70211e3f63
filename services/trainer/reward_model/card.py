"""Reads and writes `reward_model.json`: how a reward model was made, and the SHA-256 of its files.

The SHA-256 of the card itself is the model's identity: it changes with any weight, token or the centre.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import rookery
from rookery.errors import SetupError
from rookery.masking import mask_setting
from services.trainer.examples import local_path
from services.trainer.reward_model.report import HeldOutReport
from services.trainer.settings import RewardModelSettings
from services.trainer.versions.files import file_sha256, read_object

CARD = "reward_model.json"

_KIND, _VERSION = "rookery-reward-model", 1


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The part of the card that a server uses. `centre` is subtracted from scores: an average answer gets 0.

    `style` is the prompt style of the training pairs (`rookery.prompt`), empty if unknown.
    """

    sha256: str
    style: str
    centre: float


def build_card(
    folder: Path, *, settings: RewardModelSettings, counts: Mapping[str, int], report: HeldOutReport
) -> bytes:
    """Returns the card of the model in `folder`, which must contain no other files yet."""
    data = local_path(settings.data)
    manifest = data.parent / "manifest.json"
    style = ""
    if manifest.exists():
        style = str(read_object(manifest).get("terms", {}).get("recipe", {}).get("style", ""))
    card = {
        "kind": _KIND,
        "version": _VERSION,
        "files": {path.name: file_sha256(path) for path in sorted(folder.iterdir())},
        "centre": report.centre,
        "style": style,
        "base_model": str(settings.model),
        "data": {
            "path": mask_setting(settings.data),
            "sha256": file_sha256(data),
            "manifest_sha256": file_sha256(manifest) if manifest.exists() else None,
            "pairs": dict(counts),
        },
        "settings": settings.fingerprint(),
        "held_out": {
            "accuracy": report.accuracy,
            "interval": report.interval,
            "loss": report.loss,
            "calibration_error": report.calibration_error,
        },
        "versions": {
            "rookery": rookery.__version__,
            **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "peft")},
        },
    }
    return json.dumps(card, indent=2).encode() + b"\n"


def read_card(folder: Path) -> ModelCard:
    """Returns the card of a directory, after checking the files that it names.

    Raises:
        SetupError: there is no card, or a file is missing or has another SHA-256.
    """
    path = folder / CARD
    if not path.is_file():
        raise SetupError(f"{folder} has no {CARD}: it was not written by `rookery reward-model`")
    data = path.read_bytes()
    card = read_object(path)
    if (card.get("kind"), card.get("version")) != (_KIND, _VERSION):
        raise SetupError(f"{path}: {card.get('kind')!r} in version {card.get('version')!r} is not supported")
    for name, expected in card["files"].items():
        if not (folder / name).is_file() or file_sha256(folder / name) != expected:
            raise SetupError(f"{folder / name} is not the file that {CARD} names")
    return ModelCard(hashlib.sha256(data).hexdigest(), str(card["style"]), float(card["centre"]))
