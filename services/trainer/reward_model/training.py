"""`rookery reward-model`: trains a Bradley-Terry model on preference pairs and measures it on held-out pairs.

The answers of a pair share their prompt in one row. The head computes a score from the last token of each.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from rookery.config.finetune import RewardModelSettings
from services.trainer.distributed.process_group import is_rank_zero
from services.trainer.examples import local_path
from services.trainer.examples.pairs import PairExamples, TokenPair, read_pairs
from services.trainer.examples.rows import TokenBatch, collate_examples
from services.trainer.finetune.loop import finetune, start_run
from services.trainer.finetune.model import (
    base_dtype,
    hidden_states,
    load_chat_tokenizer,
    load_sequence_classifier,
    prepare_model,
)
from services.trainer.finetune.output import export_model
from services.trainer.finetune.task import FinetuneTask, Sums
from services.trainer.records.tracking import track
from services.trainer.reward_model.report import (
    CARD,
    HeldOutReport,
    ScoredPair,
    build_card,
    draw_calibration,
    report_on,
)

logger = logging.getLogger(__name__)

_EVALUATED_AT_ONCE = 32


class RewardModelTask(FinetuneTask[RewardModelSettings]):
    """The task: the chosen answer scores higher than the rejected one."""

    name = "reward-model"

    def sums(self, batch: TokenBatch) -> Sums:
        """Returns the loss, and how often the chosen answer scores higher."""
        scores_E2 = self.scores(batch).view(-1, 2)
        margin_E = self.settings.margin * batch.gaps_K[::2]
        loss_E = bradley_terry_loss(scores_E2[:, 0], scores_E2[:, 1], margin_E)
        won_E = (scores_E2[:, 0] > scores_E2[:, 1]).float()
        return {"loss": loss_E.sum(), "accuracy": won_E.sum()}

    def scores(self, batch: TokenBatch) -> torch.Tensor:
        """Returns the score of each answer, [K], in float32: bfloat16 would make close scores equal."""
        return score_ends(self.model, hidden_states(self.model, batch)[batch.end_K])

    def measure(self, pairs: Sequence[TokenPair]) -> list[ScoredPair]:
        """Returns the scores of `pairs`, in their order."""
        scored: list[ScoredPair] = []
        device = next(self.model.parameters()).device
        for start in range(0, len(pairs), _EVALUATED_AT_ONCE):
            chunk = pairs[start : start + _EVALUATED_AT_ONCE]
            batch = collate_examples([[pair.example] for pair in chunk], device=device)
            with torch.no_grad():
                scores_E2 = self.scores(batch).view(-1, 2).tolist()
            scored += [
                ScoredPair(chosen, rejected, pair.example.gap, pair.origin, pair.phase)
                for pair, (chosen, rejected) in zip(chunk, scores_E2, strict=True)
            ]
        return scored


def bradley_terry_loss(
    chosen_E: torch.Tensor, rejected_E: torch.Tensor, margin_E: torch.Tensor
) -> torch.Tensor:
    """-log sigmoid(r_chosen - r_rejected - margin), [E]: how surprising the preference is, in nats.

    Bradley and Terry (Biometrika 39, 1952) as the loss of a reward model: Ouyang et al. 2022
    (arXiv 2203.02155), eq. 1. The margin grows with how much better the chosen answer is: Llama 2
    (arXiv 2307.09288), eq. 2. If the margin is 0, the sigmoid of the difference is the probability of the
    preference.
    """
    return -F.logsigmoid(chosen_E - rejected_E - margin_E)


def score_ends(model: Any, hidden_KD: torch.Tensor) -> torch.Tensor:
    """Applies the head to the hidden states of last tokens. Returns scores, [K] in float32."""
    unwrapped = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.autocast(hidden_KD.device.type, enabled=False):
        return F.linear(hidden_KD.float(), unwrapped.score.weight.float())[:, 0]


def run(settings: RewardModelSettings) -> Path:
    """Trains a reward model on `settings.data` and returns the directory of the result."""
    folder, settings = start_run(settings)
    tokenizer = load_chat_tokenizer(folder)
    pairs = read_pairs(
        local_path(settings.data),
        tokenizer,
        max_length=settings.max_length,
        held_out=settings.held_out,
        after_end=True,  # a score is that of the last token of the text
    )
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    body = load_sequence_classifier(folder, dtype=base_dtype(settings), pad_id=pad_id)
    model = prepare_model(body, settings, trained_whole=("score",))
    task = RewardModelTask(model, settings, [pair.example for pair in pairs.held_out])
    with track(settings.out, to=settings.trackers, params=settings.model_dump(mode="json")) as tracker:
        finetune(task, PairExamples(pairs.train), tracker)
        report = report_on(task.measure(pairs.held_out))
        if is_rank_zero():
            _write_report(report, settings, pairs.counts)
        card = partial(build_card, settings=settings, counts=pairs.counts, report=report)
        return export_model(model, tokenizer, settings, extra_files=lambda folder: {CARD: card(folder)})


def _write_report(report: HeldOutReport, settings: RewardModelSettings, counts: dict[str, int]) -> None:
    text = json.dumps({"pairs": counts, "held_out": asdict(report)}, indent=2)
    (settings.out / "report.json").write_text(text + "\n")
    (settings.out / "calibration.png").write_bytes(draw_calibration(report))
    logger.info(
        "held-out pairs: accuracy %.3f [%.3f, %.3f], loss %.3f, calibration error %.3f",
        report.accuracy, *report.interval, report.loss, report.calibration_error,
    )  # fmt: skip
