"""Chooses the batch size for `--micro-batch-tokens auto` and `rookery autobatch`."""

import logging

import torch
from rich.console import Console

from services.trainer.autobatch import profiles
from services.trainer.autobatch.probe import Shape, probe
from services.trainer.autobatch.profiles import Profile
from services.trainer.autobatch.search import TARGET, Found, search
from services.trainer.model.base_model import check_length, max_positions
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.settings.autobatch import AutobatchSettings
from services.trainer.versions.files import make_folder

logger = logging.getLogger(__name__)

FIRST = 2
"""Positions of the first configuration."""
GROUP = 4
"""Completions of each made-up group."""
ROW = 1024
"""Tokens of one, where rows are as long as a forward pass; it is the tokens of all that take memory."""


def settle_micro_batch(settings: TrainerSettings, policy: Policy) -> TrainerSettings:
    """`settings` with the tokens of a forward pass measured, where they are `auto`.

    Rows of the greatest length that they may have, or of `ROW`; never more of them than a step has groups.
    A run that resumes on the same device takes what it took before.
    """
    if settings.micro_batch_tokens:
        return settings
    shape = _row(settings.row_tokens or ROW, most=max_positions(policy.model.config))
    asked = _asked(settings, shape, policy.device)
    choice = profiles.saved_choice(settings.run_dir, asked=asked)
    if choice is None:
        found = _search(settings, policy, shape, most=settings.batch_groups)
        choice = found.choice
        profiles.save(settings.run_dir, found.profiles, choice, asked=asked)
    logger.info("takes %d tokens a forward pass: %s", choice.tokens, _said(choice))
    return settings.model_copy(update={"micro_batch_tokens": choice.tokens})


def autobatch(settings: AutobatchSettings, console: Console) -> Profile:
    """Tries (2, G), (4, G), (8, G) ... for one forward pass a step; prints all, then the choice."""
    make_folder(settings.run_dir, setting="--run-dir")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    policy = build_policy(settings)
    shape = Shape(settings.group_size, settings.prompt_tokens, settings.completion_tokens)
    check_length(policy.model, shape.sequence_tokens, name="--prompt-tokens and --completion-tokens")
    found = _search(settings, policy, shape, most=settings.most_positions)
    asked = _asked(settings, shape, policy.device)
    profiles.save(settings.run_dir, found.profiles, found.choice, asked=asked)
    choice = found.choice
    said = (
        profiles.table(found.profiles, target=TARGET),
        f"\nchoice: {_said(choice)}",
        f"--batch-groups {choice.positions} --micro-batch-tokens {choice.tokens}",
        f"profiles in {settings.run_dir / profiles.FILE}",
    )
    console.print("\n".join(said), highlight=False, markup=False, soft_wrap=True)
    return choice


def _row(tokens: int, *, most: int | None) -> Shape:
    """A made-up group of `tokens` tokens; of more completions where the model has `most` positions alone."""
    prompt = tokens // 8
    completion = (tokens - prompt) // GROUP
    if most is not None and prompt + completion > most:
        prompt = most // 3
        completion = most - prompt
    return Shape((tokens - prompt) // completion, prompt, completion)


def _search(settings: TrainerSettings, policy: Policy, shape: Shape, *, most: int) -> Found:
    return search(lambda size: probe(policy, settings, shape, positions=size), first=FIRST, most=most)


def _said(choice: Profile) -> str:
    return (
        f"{choice.positions} positions x {choice.group} completions, {choice.positions * choice.group} "
        f"sequences, peak {choice.peak / 2**30:.2f} GiB ({choice.share:.1%})"
    )


def _asked(settings: TrainerSettings, shape: Shape, device: torch.device) -> dict[str, str]:
    """Returns the settings that a profile depends on."""
    fields = (
        "model", "lora_rank", "lora_targets", "gradient_checkpointing", "adam_bits", "offload", "int8_base",
        "objective", "kl", "batch_groups",
    )  # fmt: skip
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {
        **{field: str(getattr(settings, field)) for field in fields},
        "group": str(shape.group),
        "prompt_tokens": str(shape.prompt_tokens),
        "completion_tokens": str(shape.completion_tokens),
        "device": name,
    }
