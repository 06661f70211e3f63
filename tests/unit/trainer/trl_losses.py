r"""Writes `tests/unit/trainer/trl_losses.json`: what TRL's own loss makes of given tensors.

TRL is among the packages that `make trainers` installs:

    PYTHONPATH=.trainers .venv/bin/python tests/unit/trainer/trl_losses.py \
        > tests/unit/trainer/trl_losses.json

Called are the trainers' own methods, on objects that have the attributes they read and hand them
log-probabilities, or rewards, instead of running a model. Everything is float64. Pairs, for DPO and reward
models, are the first half of the completions and the second.
"""

import json
import random
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import DPOTrainer, GRPOTrainer, RewardTrainer, SFTTrainer

LIMIT = 8
"""Token limit of a completion."""

LOW, HIGH, CAP, BETA = 0.2, 0.28, 1.2, 0.04

CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "grpo with k3": {"loss_type": "grpo", "beta": BETA},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "dapo with k3": {"loss_type": "dapo", "beta": BETA},
    "cispo": {"loss_type": "cispo", "epsilon_high": CAP},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
}


MARGINS = [0.0, 0.4, 1.3]
"""Of the pairs, for reward models."""

ALONE = SimpleNamespace(
    num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x
)


def main() -> None:
    """Prints the JSON of all cases."""
    batch = _batch(random.Random(20))
    results = {name: _run(changed, batch) for name, changed in CASES.items()}
    settings = {"limit": LIMIT, "low": LOW, "high": HIGH, "cap": CAP, "beta": BETA}
    written = {"trl": trl.__version__, "torch": torch.__version__, "settings": settings}
    others = {
        "margins": MARGINS,
        "sft": _sft(batch),
        "dpo": {str(beta): _dpo(batch, beta) for beta in (0.1, 2.0)},
        "bradley_terry": {"plain": _bradley_terry(batch), "margin": _bradley_terry(batch, margin=MARGINS)},
    }
    json.dump({**written, "completions": batch, "cases": results, **others}, sys.stdout, indent=1)
    print()


def _batch(rng: random.Random) -> list[dict[str, Any]]:
    """Completions of several lengths: log-probabilities of three policies, and an advantage."""

    def near(values: list[float], by: float) -> list[float]:
        return [round(min(0.0, value + rng.gauss(0.0, by)), 3) for value in values]

    completions = []
    for length in (1, 3, 5, 8, 8, 2):
        behaviour = [round(-rng.expovariate(0.7), 3) for _ in range(length)]
        completions.append(
            {
                "logprobs": near(behaviour, 0.5),
                "behaviour": behaviour,
                "reference": near(behaviour, 0.8),
                "advantage": round(rng.gauss(0.0, 1.0), 3),
            }
        )
    return completions


def _run(changed: dict[str, Any], batch: list[dict[str, Any]]) -> dict[str, Any]:
    logprobs, mask = _logprobs(batch)
    prompts = torch.zeros(len(batch), 1, dtype=torch.long)
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": torch.zeros_like(mask, dtype=torch.long),
        "completion_mask": mask,
        "advantages": torch.tensor([c["advantage"] for c in batch], dtype=torch.float64),
        "old_per_token_logps": _padded([c["behaviour"] for c in batch]),
        "ref_per_token_logps": _padded([c["reference"] for c in batch]),
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(_trainer(changed, logprobs), None, inputs)
    return _found(loss, logprobs, batch)


def _sft(batch: list[dict[str, Any]]) -> dict[str, Any]:
    """Cross-entropy of a completion's tokens, each of the same weight."""
    logprobs, mask = _logprobs(batch)
    trainer = _with(args=SimpleNamespace(loss_type="nll", average_tokens_across_devices=False),
                    compute_loss_func=None, label_smoother=None)  # fmt: skip
    loss = SFTTrainer.compute_loss(trainer, lambda **_: _outputs(logprobs, mask), {"labels": None})
    return _found(loss, logprobs, batch)


def _dpo(batch: list[dict[str, Any]], beta: float) -> dict[str, Any]:
    logprobs, mask = _logprobs(batch)
    chosen, rejected = _padded([c["reference"] for c in batch]).sum(-1).chunk(2)
    trainer = _with(
        beta=beta, f_divergence_type="reverse_kl", ld_alpha=None, loss_types=["sigmoid"], loss_weights=[1.0],
        precompute_ref_logps=True, use_weighting=False,
    )  # fmt: skip
    prompted = torch.cat([torch.zeros(len(batch), 1, dtype=torch.long), mask.long()], dim=1)
    inputs = {
        "input_ids": torch.zeros_like(prompted),
        "completion_mask": prompted,
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    loss = DPOTrainer._compute_loss(trainer, lambda **_: _outputs(logprobs, mask), inputs, False)
    return _found(loss, logprobs, batch)


def _bradley_terry(batch: list[dict[str, Any]], **inputs: Any) -> dict[str, Any]:
    """Rewards are the completions' advantages, of which there is one each."""
    rewards = torch.tensor([c["advantage"] for c in batch], dtype=torch.float64, requires_grad=True)
    trainer = _with(args=SimpleNamespace(center_rewards_coefficient=None))
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in inputs.items()}
    loss = RewardTrainer.compute_loss(trainer, lambda **_: SimpleNamespace(logits=rewards[:, None]), given)
    loss.backward()
    return {"loss": loss.item(), "gradient": rewards.grad.tolist()}


def _logprobs(batch: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    mask = _padded([[1.0] * len(c["logprobs"]) for c in batch])
    return _padded([c["logprobs"] for c in batch]).requires_grad_(), mask


def _outputs(logprobs: torch.Tensor, mask: torch.Tensor) -> SimpleNamespace:
    """What TRL's fused head gives; it is 0 beside the completion."""
    nothing = torch.zeros_like(mask)
    return SimpleNamespace(
        log_probs=logprobs, label_mask=mask, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool()
    )


def _with(**attributes: Any) -> SimpleNamespace:
    """In evaluation mode, without an auxiliary loss."""
    common = {
        "accelerator": SimpleNamespace(**vars(ALONE), device=torch.device("cpu"), parallelism_config=None),
        "aux_loss_enabled": False,
        "model": SimpleNamespace(training=False),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_total_train_tokens": 0,
    }
    return SimpleNamespace(**{**common, **attributes})


def _found(loss: torch.Tensor, logprobs: torch.Tensor, batch: list[dict[str, Any]]) -> dict[str, Any]:
    loss.backward()
    rows = [row[: len(c["logprobs"])] for row, c in zip(logprobs.grad.tolist(), batch, strict=True)]
    return {"loss": loss.item(), "gradient": rows}


def _trainer(changed: dict[str, Any], logprobs: torch.Tensor) -> SimpleNamespace:
    """The whole batch at once, no accumulation."""
    attributes = {
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
        "_entropy_bonus_enabled": False,
        "beta": 0.0,
        "epsilon_low": LOW,
        "epsilon_high": HIGH,
        "importance_sampling_level": "token",
        "max_completion_length": LIMIT,
        "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0,
        "use_vllm": False,
    }
    return _with(**{**attributes, **changed})


def _padded(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([row + [0.0] * (LIMIT - len(row)) for row in rows], dtype=torch.float64)


if __name__ == "__main__":
    main()
