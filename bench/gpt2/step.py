"""A step of RookWorld's training: answers written and learned from in one process, without vLLM.

Rewards are made up: neither the engine nor anything else is waited for.
"""

import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import Sampling
from services.trainer.gpt2.generate import generate
from services.trainer.memory_probe import synthetic_group
from services.trainer.model.policies import Gpt2Policy
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step

ROOKWORLD = "rookworld-rlvr: 16-20 s for 64 samples, engine and all, on an RTX 4090 (its logs)"

GROUP = 8
TOKENS = 144
"""Completions of a prompt, and of tokens the most: those of the preset rookworld-mini."""


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step's two parts, and where."""

    device: str
    generate_s: float
    train_s: float


def measure_step(folder: Path, prompts: list[list[int]], *, samples: int, rounds: int) -> Step:
    """GRPO with an exact KL to the base over `samples` completions; medians of `rounds` after a first."""
    settings = TrainerSettings(
        model=str(folder), run_dir=folder, lora_rank=0, kl="policy_reference", lr=1e-5, warmup_steps=0, keep=3
    )
    policy = Gpt2Policy(settings)
    optimizer = adam.build(policy.parameters, lr=settings.lr)
    prompts = [prompts[i % len(prompts)] for i in range(samples // GROUP)]
    rng, parts = random.Random(0), []
    for step in range(rounds + 1):
        began = time.perf_counter()
        sampling = Sampling(max_tokens=TOKENS)
        written = generate(policy.model, prompts, sampling=sampling, count=GROUP, seed=step * samples)
        between = time.perf_counter()
        groups = [
            synthetic_group(number, prompt, [(a.token_ids, a.logprobs, rng.random()) for a in answers])
            for number, (prompt, answers) in enumerate(zip(prompts, written, strict=True))
        ]
        train_step(policy, optimizer, groups, step=0, settings=settings, state=RunningState())
        parts.append((between - began, time.perf_counter() - between))
    generate_s, train_s = (statistics.median(part[i] for part in parts[1:]) for i in (0, 1))
    gpu = policy.device.type == "cuda"
    device = torch.cuda.get_device_name(policy.device) if gpu else f"a CPU, {torch.get_num_threads()} threads"
    return Step(device, generate_s, train_s)
