"""Our losses beside TRL's: `trl_losses.json` holds what TRL computed, with `trl_losses.py`."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from services.trainer.attention import Blocks
from services.trainer.batches.micro_batches import MicroBatch
from services.trainer.batches.rows import normaliser, token_weight
from services.trainer.examples.rows import TokenizedExample, collate_examples
from services.trainer.finetune import sft
from services.trainer.finetune.dpo import dpo_loss, dpo_margin
from services.trainer.model.head import TokenScores
from services.trainer.reward_model.training import bradley_terry_loss
from services.trainer.training.update import Objective

TRL = json.loads((Path(__file__).parent / "trl_losses.json").read_text())

OURS: dict[str, dict[str, Any]] = {
    "grpo": {"objective": "grpo", "loss_weights": "sequence"},
    "grpo with k3": {"objective": "grpo", "loss_weights": "sequence", "kl": "k3"},
    "bnpo": {"objective": "grpo"},
    "dr_grpo": {"objective": "dr-grpo"},
    "dapo": {"objective": "dapo"},
    "dapo with k3": {"objective": "dapo", "kl": "k3"},
    "cispo": {"objective": "cispo"},
    "gspo": {"objective": "gspo"},
}


@pytest.mark.parametrize("case", TRL["cases"])
def test_loss_and_gradient_are_those_of_trl(case: str) -> None:
    numbers = TRL["settings"]
    settings = TrainerSettings(
        model=Path(), run_dir=Path(), clip_low=numbers["low"], clip_high=numbers["high"],
        ratio_cap=numbers["cap"], kl_coefficient=numbers["beta"], **OURS[case],
    )  # fmt: skip
    completions = TRL["completions"]
    completion_lengths = [(len(c["logprobs"]), numbers["limit"]) for c in completions]
    objective = Objective.of(
        settings,
        coefficient=settings.kl_coefficient,
        normaliser=normaliser(completion_lengths, settings.loss_weights),
    )
    scores = _scores(with_reference=settings.kl != "none")
    loss, _ = objective(scores, _batch(settings))
    _agrees(loss, scores.logprobs_N, TRL["cases"][case])


@pytest.mark.parametrize("beta", TRL["dpo"])
def test_dpo_is_that_of_trl(beta: str) -> None:
    """The first half of the completions is chosen over the second."""
    logprobs = _vector("logprobs").requires_grad_()
    reference = _sums(_vector("reference")).chunk(2)
    loss = dpo_loss(dpo_margin(*_sums(logprobs).chunk(2), *reference, beta=float(beta))).mean()
    _agrees(loss, logprobs, TRL["dpo"][beta])


@pytest.mark.parametrize("case", TRL["bradley_terry"])
def test_bradley_terry_is_that_of_trl(case: str) -> None:
    rewards = torch.tensor([c["advantage"] for c in TRL["completions"]], dtype=torch.float64)
    rewards.requires_grad_()
    margins = torch.tensor(TRL["margins"], dtype=torch.float64) * (case == "margin")
    loss = bradley_terry_loss(*rewards.chunk(2), margins).mean()
    _agrees(loss, rewards, TRL["bradley_terry"][case])


def test_sft_is_that_of_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    logprobs = _vector("logprobs").requires_grad_()
    monkeypatch.setattr(sft, "answer_logprobs", lambda *_: logprobs)
    settings = SftSettings(model=Path(), data=Path(), out=Path())
    task: Any = sft.SftTask(None, settings)
    examples = [TokenizedExample([1], ([2] * len(c["logprobs"]),)) for c in TRL["completions"]]
    loss = task.sums(collate_examples([[example] for example in examples]))["loss"] / task.weight(examples)
    _agrees(loss, logprobs, TRL["sft"])


def _agrees(loss: "torch.Tensor", given: "torch.Tensor", theirs: dict[str, Any]) -> None:
    """In value, and in the gradient of what was given."""
    loss.backward()
    assert loss.item() == pytest.approx(theirs["loss"], rel=1e-12)
    rows = theirs["gradient"]
    expected = list(chain.from_iterable(rows)) if isinstance(rows[0], list) else rows
    assert given.grad.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def _sums(tokens: "torch.Tensor") -> "torch.Tensor":
    lengths = [len(c["logprobs"]) for c in TRL["completions"]]
    return torch.stack([part.sum() for part in tokens.split(lengths)])


def _vector(name: str) -> "torch.Tensor":
    return torch.tensor([value for c in TRL["completions"] for value in c[name]], dtype=torch.float64)


def _scores(*, with_reference: bool) -> TokenScores:
    logprobs = _vector("logprobs").requires_grad_()
    return TokenScores(
        logprobs_N=logprobs,
        entropy_N=torch.zeros_like(logprobs),
        hidden_ND=torch.zeros(len(logprobs), 0),
        reference_logprobs_N=_vector("reference") if with_reference else None,
    )


def _batch(settings: TrainerSettings) -> MicroBatch:
    lengths = [len(c["logprobs"]) for c in TRL["completions"]]

    def spread(values: list[float]) -> "torch.Tensor":
        pairs = zip(values, lengths, strict=True)
        return torch.tensor([value for value, length in pairs for _ in range(length)], dtype=torch.float64)

    nothing = torch.zeros(0)
    return MicroBatch(
        input_ids_1T=nothing,
        position_ids_1T=nothing,
        blocks=Blocks((), nothing, nothing, nothing),
        predictor_N=nothing,
        targets_N=nothing,
        behaviour_N=_vector("behaviour"),
        advantages_N=spread([c["advantage"] for c in TRL["completions"]]),
        ages_N=spread([0] * len(lengths)).long(),
        completion_N=spread(list(range(len(lengths)))).long(),
        weight_N=spread([token_weight(length, settings.loss_weights) for length in lengths]),
        temperature=1.0,
        oldest=0,
    )
