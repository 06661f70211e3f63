"""Checks that the server sampled a group with the version it names.

One group of a batch is scored again under that version's weights: those in memory if it is the current
version, else those of its commit, loaded for one forward pass. Beyond precision, the log-probabilities differ
from the reported ones only if the server serves something else than it says, or one of both computes wrongly.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from rookery.errors import NotFound, RookeryError
from rookery.trace import TraceGroup, policy_name
from services.trainer.batches.batch import rows
from services.trainer.batches.tensors import collate
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings

logger = logging.getLogger(__name__)

TOKENS = 1024
"""Completion tokens that are enough; a group's first completion is taken whatever its length."""

WHOLE_MODEL_EVERY = 10
"""Where a version is a whole model, older ones are loaded only every so many steps: it takes a good part of a
step's time."""


def mismatch(
    policy: Policy, groups: Sequence[TraceGroup], *, step: int, settings: TrainerSettings
) -> dict[str, float]:
    """Differences of log-probabilities on one group, in nats a token: `mismatch_mean` and `mismatch_max`.

    `mismatch_age` is how many versions the group is behind, `rescore_s` the seconds it took. `policy` is at
    version `step` and is left as it was. Empty where nothing could be measured.
    """
    started = time.perf_counter()
    group = _choose(groups, step=step, settings=settings)
    if group is None:
        return {}
    made = rows(
        [group],
        [[0.0] * len(group.traces)],
        version=step,
        mask_truncated=False,
        row_tokens=len(group.prompt_token_ids) + TOKENS,
    )
    if not made:
        return {}
    batch = collate(made[:1], device=policy.device)
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


def _choose(groups: Sequence[TraceGroup], *, step: int, settings: TrainerSettings) -> TraceGroup | None:
    """The same in every process."""
    if settings.lora_rank or (settings.sharding == "none" and step % WHOLE_MODEL_EVERY == 0):
        return groups[step % len(groups)]
    return next((group for group in groups if group.policy.number == step), None)


@contextmanager
def _weights_of(policy: Policy, folder: Path | None) -> Iterator[None]:
    """Puts a commit's weights in and takes them out again; without a folder, leaves all as it is."""
    if folder is None:
        yield
        return
    if not folder.is_dir():
        raise NotFound(f"{folder} is gone")
    with torch.no_grad():
        own = [(parameter, parameter.clone()) for parameter in policy.parameters]
    try:
        policy.load_version(folder)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in own:
                parameter.copy_(value)
