"""Checks that a group comes from the version that it names: scores it again with that version's weights.

Apart from numerical precision, the log-probabilities differ from the reported ones only if the server serves
another version than it reports, or if the server or the trainer computes them incorrectly.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from rookery.config.trainer import TrainerSettings
from rookery.errors import NotFound, RookeryError
from rookery.trace import TraceGroup, policy_name
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import make_rows
from services.trainer.model.policy import Policy

logger = logging.getLogger(__name__)

TOKENS, SHARE = 1024, 1 / 32
"""Maximum number of completion tokens to score again, and as a share of the batch's. The first completion of
a group is always scored."""

WHOLE_MODEL_EVERY = 10
"""If versions are whole models, older ones are loaded only at every tenth step, because loading takes a
considerable part of a step's time."""


def mismatch(
    policy: Policy, groups: Sequence[TraceGroup], *, step: int, settings: TrainerSettings
) -> dict[str, float]:
    """Measures the differences of log-probabilities on the first turns of one group, in nats per token.

    Returns `mismatch_mean`, `mismatch_max`, `mismatch_age` (how many versions the group is behind) and
    `rescore_s` (the seconds that it took), or an empty dictionary if nothing could be measured. `policy` must
    be at version `step`, and is not changed: another version's weights are loaded for one forward pass.
    """
    started = time.perf_counter()
    group = _choose_group(groups, step=step, settings=settings)
    if group is None:
        return {}
    group = replace(group, traces=tuple(replace(trace, turns=trace.turns[:1]) for trace in group.traces))
    tokens = sum(len(turn.completion.token_ids) for group in groups for turn in group.turns)
    rows = make_rows(
        [group],
        [[0.0] * len(group.traces)],
        version=step,
        mask_truncated=False,
        row_tokens=len(group.prompt_token_ids) + min(TOKENS, int(SHARE * tokens)),
    )
    if not rows:
        return {}
    batch = collate(rows[:1], device=policy.device)
    folder = None if group.policy.number == step else settings.adapters_dir / policy_name(group.policy.number)
    try:
        with _weights_of(policy, folder), torch.no_grad():
            gap_N = (policy.score(batch).logprobs_N - batch.behaviour_N).double().abs()
    except (OSError, SafetensorError, RookeryError) as error:
        logger.warning("group %s cannot be scored under %s: %s", group.id, group.policy.name, error)
        return {}
    return {
        "mismatch_mean": gap_N.mean().item(),
        "mismatch_max": gap_N.max().item(),
        "mismatch_age": step - group.policy.number,
        "rescore_s": time.perf_counter() - started,
    }


def _choose_group(groups: Sequence[TraceGroup], *, step: int, settings: TrainerSettings) -> TraceGroup | None:
    """Chooses the group to score, or None. The choice is the same in all processes."""
    if settings.lora_rank or (settings.sharding == "none" and step % WHOLE_MODEL_EVERY == 0):
        return groups[step % len(groups)]
    return next((group for group in groups if group.policy.number == step), None)


@contextmanager
def _weights_of(policy: Policy, folder: Path | None) -> Iterator[None]:
    """Loads a commit's weights for the `with` block, then restores the policy's. No-op without a folder.
    Raises `NotFound` if the folder does not exist."""
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise NotFound(f"{folder} does not exist any more")
    with torch.no_grad():
        copies = [(parameter, parameter.clone()) for parameter in policy.parameters]
    try:
        policy.load_version(folder)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in copies:
                parameter.copy_(value)
