"""Direct preference optimisation: trains an adapter on pairs, without a reward model and without sampling.

The reference is the base with the adapter off, so no second copy of the weights is needed. The answers of a
pair share their prompt in one row.
"""

from pathlib import Path

import torch
import torch.nn.functional as F

from rookery.config.finetune import DpoSettings
from services.trainer.examples import local_path
from services.trainer.examples.pairs import PairExamples, read_pairs
from services.trainer.examples.rows import TokenBatch
from services.trainer.finetune.loop import finetune, start_run
from services.trainer.finetune.model import answer_logprobs, base_dtype, load_chat_tokenizer, prepare_model
from services.trainer.finetune.output import export_model, model_manifest, style_of
from services.trainer.finetune.task import FinetuneTask, Sums
from services.trainer.model.base_model import load_causal_lm
from services.trainer.records.tracking import track


class DpoTask(FinetuneTask[DpoSettings]):
    """The task of DPO: makes the chosen answer more likely than the rejected one, relative to the base."""

    name = "dpo"

    def sums(self, batch: TokenBatch) -> Sums:
        """Returns the loss, the margin of implicit rewards, and how often the chosen answer's is higher.
        `logprob_chosen` and `logprob_rejected` show whether both fall, which is common in DPO."""
        with torch.no_grad(), self.model.disable_adapter():
            base_E2 = self._answers(batch)
        policy_E2 = self._answers(batch)
        pairs = (policy_E2[:, 0], policy_E2[:, 1], base_E2[:, 0], base_E2[:, 1])
        margin_E = dpo_margin(*pairs, beta=self.settings.beta)
        loss_E = dpo_loss(margin_E, label_smoothing=self.settings.label_smoothing)
        margin_E = margin_E.detach()
        chosen, rejected = policy_E2.detach().sum(0)
        return {
            "loss": loss_E.sum(),
            "accuracy": (margin_E > 0).float().sum(),
            "margin": margin_E.sum(),
            "logprob_chosen": chosen,
            "logprob_rejected": rejected,
        }

    def _answers(self, batch: TokenBatch) -> torch.Tensor:
        """Returns log p of whole answers, [E, 2]: chosen, rejected."""
        logprobs_N = answer_logprobs(self.model, batch)
        return logprobs_N.new_zeros(len(batch.end_K)).index_add(0, batch.answer_N, logprobs_N).view(-1, 2)


def dpo_loss(margin_E: torch.Tensor, *, label_smoothing: float = 0.0) -> torch.Tensor:
    """Direct preference optimisation, [E]: Rafailov et al. 2023 (arXiv 2305.18290), eq. 7, of `dpo_margin`.

    `label_smoothing` is the share of pairs assumed to be mislabelled (Mitchell, "A note on DPO with noisy
    preferences", 2023, eq. 3).
    """
    return -(1 - label_smoothing) * F.logsigmoid(margin_E) - label_smoothing * F.logsigmoid(-margin_E)


def dpo_margin(
    chosen_E: torch.Tensor,
    rejected_E: torch.Tensor,
    reference_chosen_E: torch.Tensor,
    reference_rejected_E: torch.Tensor,
    *,
    beta: float,
) -> torch.Tensor:
    """Implicit reward of chosen minus that of rejected, [E]: beta times the difference of the log-ratios. The
    four tensors are log-probabilities of whole answers, summed over their tokens."""
    return beta * ((chosen_E - reference_chosen_E) - (rejected_E - reference_rejected_E))


def run(settings: DpoSettings) -> Path:
    """Trains an adapter of `settings.model` on `settings.data`. Returns the directory of the merged model."""
    folder, settings = start_run(settings)
    tokenizer = load_chat_tokenizer(folder)
    pairs = read_pairs(
        local_path(settings.data), tokenizer, max_length=settings.max_length, held_out=settings.held_out
    )
    style = style_of(settings)
    model = prepare_model(load_causal_lm(folder, dtype=base_dtype(settings)), settings)
    task = DpoTask(model, settings, [pair.example for pair in pairs.held_out])
    with track(settings.out, to=settings.trackers, params=settings.model_dump(mode="json")) as tracker:
        finetune(task, PairExamples(pairs.train), tracker)
        manifest = model_manifest(settings, style=style, answers=pairs.survey)
        return export_model(model, tokenizer, settings, extra_files=lambda _: manifest)
