"""`rookery reward-model`: Bradley-Terry on preference pairs, and how well it does on those held out.

The answers of a pair share their prompt in one row; the score is read off the last token of each.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from services.trainer.examples.data_file import local
from services.trainer.examples.pairs import PairExamples, TokenPair, read_shares
from services.trainer.fitting.backbone import hidden_states, load_scorer, load_tokenizer
from services.trainer.fitting.layout import Example, Laid, lay
from services.trainer.fitting.loop import Sums, fit, mean_over
from services.trainer.fitting.setup import base_dtype, export, prepare, ready
from services.trainer.losses.preference import bradley_terry
from services.trainer.records.tracking import track
from services.trainer.reward_model import plot
from services.trainer.reward_model.card import CARD, describe
from services.trainer.reward_model.report import Measured, Report, report_on
from services.trainer.settings import RewardModelSettings

logger = logging.getLogger(__name__)

_EVALUATED_AT_ONCE = 32


class Preference:
    """The course: the chosen answer scores higher than the rejected one."""

    name = "reward-model"

    def __init__(self, model: Any, settings: RewardModelSettings, held_out: Sequence[Example]) -> None:
        self.model = model
        self._settings = settings
        self._held_out = held_out[: settings.eval_examples]

    def weight(self, examples: Sequence[Example]) -> int:
        """Returns the number of pairs."""
        return len(examples)

    def sums(self, laid: Laid) -> Sums:
        """Returns the loss, and how often the chosen answer scores higher."""
        scores_E2 = self.scores(laid).view(-1, 2)
        margin_E = self._settings.margin * laid.gaps_K[::2]
        loss_E = bradley_terry(scores_E2[:, 0], scores_E2[:, 1], margin_E)
        won_E = (scores_E2[:, 0] > scores_E2[:, 1]).float()
        return {"loss": loss_E.sum(), "accuracy": won_E.sum()}

    def scores(self, laid: Laid) -> torch.Tensor:
        """Returns the score of each answer, [K]. The head is in float32: bfloat16 would blur close scores."""
        return score_ends(self.model, hidden_states(self.model, laid)[laid.end_K])

    def evaluate(self) -> dict[str, float]:
        """Loss and accuracy on held-out pairs."""
        return mean_over(self, self._held_out, self._settings)

    def measure(self, pairs: Sequence[TokenPair]) -> list[Measured]:
        """The scores of `pairs`, in their order."""
        found: list[Measured] = []
        device = next(self.model.parameters()).device
        for start in range(0, len(pairs), _EVALUATED_AT_ONCE):
            here = pairs[start : start + _EVALUATED_AT_ONCE]
            laid = lay([[pair.example] for pair in here], device=device)
            with torch.no_grad():
                scores_E2 = self.scores(laid).view(-1, 2).tolist()
            found += [
                Measured(chosen, rejected, pair.example.gap, pair.origin, pair.phase)
                for pair, (chosen, rejected) in zip(here, scores_E2, strict=True)
            ]
        return found


def score_ends(model: Any, hidden_KD: torch.Tensor) -> torch.Tensor:
    """The head on hidden states of last tokens, [K] in float32."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.autocast(hidden_KD.device.type, enabled=False):
        return F.linear(hidden_KD.float(), whole.score.weight.float())[:, 0]


def run(settings: RewardModelSettings) -> Path:
    """Trains a reward model on `settings.data` and returns the directory of the result."""
    folder = prepare(settings)
    tokenizer = load_tokenizer(folder)
    shares = read_shares(
        local(settings.data), tokenizer, max_length=settings.max_length, held_out=settings.held_out
    )
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    body = load_scorer(folder, dtype=base_dtype(settings), pad_id=pad_id)
    model = ready(body, settings, trained_whole=("score",))
    course = Preference(model, settings, [pair.example for pair in shares.held_out])
    with track(settings.out, wanted=settings.mlflow, params=settings.model_dump(mode="json")) as tracker:
        fit(course, PairExamples(shares.train), settings, tracker)
        report = report_on(course.measure(shares.held_out))
        _write_report(report, settings, shares.counts)

        def card(folder: Path) -> dict[str, bytes]:
            return {
                CARD: describe(folder, settings, centre=report.centre, counts=shares.counts, report=report)
            }

        return export(model, tokenizer, settings, beside=card)


def _write_report(report: Report, settings: RewardModelSettings, counts: dict[str, int]) -> None:
    text = json.dumps({"pairs": counts, **report.as_json()}, indent=2)
    (settings.out / "report.json").write_text(text + "\n")
    (settings.out / "calibration.png").write_bytes(plot.draw(report))
    logger.info(
        "held-out pairs: accuracy %.3f [%.3f, %.3f], loss %.3f, calibration error %.3f",
        report.accuracy, *report.interval, report.loss, report.calibration_error,
    )  # fmt: skip
