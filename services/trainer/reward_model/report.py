"""The report of a reward model, with its accuracy and calibration on held-out pairs, and its model card.

The card, reward_model.json, says how the model was made, and the SHA-256 of its files. The SHA-256 of the
card itself is the model's identity: it changes with any weight, token or the centre.

For a pair with scores r, sigmoid(|r_chosen - r_rejected|) is the model's confidence in the answer that it
prefers (`sureness` in report.json). A calibrated model is right for 80% of the pairs with confidence 80%.
"""

import hashlib
import importlib.metadata
import io
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import rookery
from rookery.config.finetune import RewardModelSettings
from rookery.errors import SetupError
from rookery.intervals import wilson
from rookery.masking import mask_setting
from services.trainer.examples import data_manifest, data_style, local_path
from services.trainer.versions.files import file_sha256, read_object

CARD = "reward_model.json"

_KIND, _VERSION = "rookery-reward-model", 1

_COLOUR, _GREY = "#2563a8", "#5b6470"

_GAPS = (0.0, 0.05, 0.1, 0.2, 0.4, 1.0)
"""Edges of the buckets by gap in win probability."""

_BINS = 10
"""The number of confidence bins, from 0.5 to 1."""


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """A pair and the scores of its answers."""

    chosen: float
    rejected: float
    gap: float
    origin: str = ""
    phase: str = ""

    @property
    def margin(self) -> float:
        return self.chosen - self.rejected

    @property
    def right(self) -> float:
        """1 if the chosen answer has the higher score, 0 if the lower, 0.5 for equal scores."""
        return 0.5 if self.margin == 0.0 else float(self.margin > 0.0)

    @property
    def sureness(self) -> float:
        return 1.0 / (1.0 + math.exp(-min(abs(self.margin), 700.0)))

    @property
    def loss(self) -> float:
        """-log sigmoid(margin), in nats."""
        return math.log1p(math.exp(-abs(self.margin))) + max(0.0, -self.margin)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A subset of the pairs: the model's mean confidence, and how often it is right."""

    name: str
    pairs: int
    accuracy: float
    sureness: float


@dataclass(frozen=True, slots=True)
class HeldOutReport:
    """The whole report. `centre` is the mean score, which has no meaning in itself.

    `calibration_error` is the mean distance of accuracy from confidence, over pairs: the expected calibration
    error of Guo et al. 2017 (arXiv 1706.04599, eq. 3).
    """

    pairs: int
    loss: float
    accuracy: float
    interval: tuple[float, float]
    calibration_error: float
    centre: float
    reliability: tuple[Bucket, ...]
    by_gap: tuple[Bucket, ...]
    by_origin: tuple[Bucket, ...]
    by_phase: tuple[Bucket, ...]


def report_on(measured: Sequence[ScoredPair]) -> HeldOutReport:
    """Returns the report of at least one pair."""
    right = math.fsum(pair.right for pair in measured)
    reliability = _buckets(measured, _bin_name)
    return HeldOutReport(
        pairs=len(measured),
        loss=statistics.fmean(pair.loss for pair in measured),
        accuracy=right / len(measured),
        interval=wilson(right, len(measured)),
        calibration_error=math.fsum(b.pairs * abs(b.accuracy - b.sureness) for b in reliability)
        / len(measured),
        centre=statistics.fmean((pair.chosen + pair.rejected) / 2 for pair in measured),
        reliability=reliability,
        by_gap=_buckets(measured, _gap_name),
        by_origin=_buckets(measured, lambda pair: pair.origin),
        by_phase=_buckets(measured, lambda pair: pair.phase),
    )


def _buckets(measured: Sequence[ScoredPair], name: Callable[[ScoredPair], str]) -> tuple[Bucket, ...]:
    groups: dict[str, list[ScoredPair]] = {}
    for pair in measured:
        groups.setdefault(name(pair), []).append(pair)
    return tuple(
        Bucket(
            name=key,
            pairs=len(group),
            accuracy=statistics.fmean(pair.right for pair in group),
            sureness=statistics.fmean(pair.sureness for pair in group),
        )
        for key, group in sorted(groups.items())
        if key
    )


def _bin_name(pair: ScoredPair) -> str:
    low = min(_BINS - 1, int((pair.sureness - 0.5) * 2 * _BINS)) / (2 * _BINS) + 0.5
    return f"{low:.2f}-{low + 0.5 / _BINS:.2f}"


def _gap_name(pair: ScoredPair) -> str:
    for low, high in pairwise(_GAPS):
        if pair.gap < high or high == _GAPS[-1]:
            return f"{low:g}-{high:g}"
    return ""


def draw_calibration(report: HeldOutReport) -> bytes:
    """Draws accuracy by confidence and by gap. Returns a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained", dpi=120)
    left, right = figure.subplots(1, 2)
    most_pairs = max(bucket.pairs for bucket in report.reliability)
    left.plot([0.5, 1.0], [0.5, 1.0], color=_GREY, linestyle="--", linewidth=1)
    left.scatter(
        [bucket.sureness for bucket in report.reliability],
        [bucket.accuracy for bucket in report.reliability],
        s=[20 + 180 * bucket.pairs / most_pairs for bucket in report.reliability],
        color=_COLOUR,
        alpha=0.8,
    )
    left.set_xlabel("the model's probability of the answer it prefers")
    left.set_ylabel("how often it is right")
    left.set_title(f"calibration error {report.calibration_error:.3f}", loc="left")
    gaps = report.by_gap
    bars = right.bar([bucket.name for bucket in gaps], [bucket.accuracy for bucket in gaps], color=_COLOUR)
    right.bar_label(bars, [str(bucket.pairs) for bucket in gaps], fontsize=8)
    right.axhline(0.5, color=_GREY, linestyle="--", linewidth=1)
    right.set_ylim(0.0, 1.08)
    right.set_xlabel("gap in win probability")
    right.set_title(f"accuracy {report.accuracy:.3f} on {report.pairs} held-out pairs", loc="left")
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The part of the card that a server uses. `centre` is subtracted from scores: an average answer gets 0.
    `style` is the prompt style of the training pairs (`rookery.prompt`), empty if unknown."""

    sha256: str
    style: str
    centre: float


def build_card(
    folder: Path, *, settings: RewardModelSettings, counts: Mapping[str, int], report: HeldOutReport
) -> bytes:
    """Returns the card of the model in `folder`, which must contain no other files yet."""
    manifest = data_manifest(settings.data)
    card = {
        "kind": _KIND,
        "version": _VERSION,
        "files": {path.name: file_sha256(path) for path in sorted(folder.iterdir())},
        "centre": report.centre,
        "style": data_style(settings.data),
        "base_model": str(settings.model),
        "data": {
            "path": mask_setting(settings.data),
            "sha256": file_sha256(local_path(settings.data)),
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
    """Returns the card of a directory, after checking the files that it names. Raises `SetupError` if there
    is no card, or a file is missing or has another SHA-256."""
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
