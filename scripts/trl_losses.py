"""Writes `tests/unit/trainer/trl_losses.json`: what TRL's own loss makes of given tensors.

Runs in TRL's environment, which the benchmark makes (`bench/loop/peer_env.py`), never in ours:

    .venv/bin/python -c "from pathlib import Path; from bench.loop.peer_env import peer_python; \\
        print(peer_python(Path('runs/trl-env')))"
    runs/trl-env/bin/python scripts/trl_losses.py > tests/unit/trainer/trl_losses.json

Called is `GRPOTrainer._compute_loss` itself, on an object that has the attributes it reads and hands it the
log-probabilities instead of running a model. Everything is float64.
"""

import json
import random
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
import trl
from trl import GRPOTrainer

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


def main() -> None:
    """Prints the JSON of all cases."""
    batch = _batch(random.Random(20))
    results = {name: _run(changed, batch) for name, changed in CASES.items()}
    settings = {"limit": LIMIT, "low": LOW, "high": HIGH, "cap": CAP, "beta": BETA}
    written = {"trl": trl.__version__, "torch": torch.__version__, "settings": settings}
    json.dump({**written, "completions": batch, "cases": results}, sys.stdout, indent=1)
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
    logprobs = _padded([c["logprobs"] for c in batch]).requires_grad_()
    mask = _padded([[1.0] * len(c["logprobs"]) for c in batch])
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
    loss.backward()
    rows = [row[: len(c["logprobs"])] for row, c in zip(logprobs.grad.tolist(), batch, strict=True)]
    return {"loss": loss.item(), "gradient": rows}


def _trainer(changed: dict[str, Any], logprobs: torch.Tensor) -> SimpleNamespace:
    """In evaluation mode: the whole batch at once, no accumulation."""
    alone = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    attributes = {
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
        "accelerator": alone,
        "model": SimpleNamespace(training=False),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_get_per_token_logps_and_entropies": lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
        "_entropy_bonus_enabled": False,
        "aux_loss_enabled": False,
        "beta": 0.0,
        "epsilon_low": LOW,
        "epsilon_high": HIGH,
        "importance_sampling_level": "token",
        "max_completion_length": LIMIT,
        "off_policy_mask_threshold": None,
        "top_entropy_quantile": 1.0,
        "use_vllm": False,
    }
    return SimpleNamespace(**{**attributes, **changed})


def _padded(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([row + [0.0] * (LIMIT - len(row)) for row in rows], dtype=torch.float64)


if __name__ == "__main__":
    main()
