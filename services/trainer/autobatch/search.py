"""Searches for the largest batch that fits, for `--micro-batch-tokens auto` and `rookery autobatch`.

Sizes double. A size whose peak would exceed the available memory is never run: on a CPU, nothing catches the
kernel's out-of-memory killer. Only activations grow with the size, so the last measurement predicts the peak.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.console import Console

from rookery.errors import SetupError
from services.trainer.autobatch import profiles
from services.trainer.autobatch.probe import TARGET, GroupShape, probe
from services.trainer.autobatch.profiles import Profile
from services.trainer.model.base_model import check_length, max_positions
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.settings import AutobatchSettings, TrainerSettings
from services.trainer.versions.files import make_folder

logger = logging.getLogger(__name__)

FIRST = 2
"""Positions of the first configuration."""
GROUP = 4
"""Completions of each made-up group."""
ROW = 1024
"""Tokens of a row if rows may be as long as a forward pass. Memory depends on the tokens of all rows."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All configurations tried, in order, and the largest that fits."""

    profiles: tuple[Profile, ...]
    choice: Profile


def find_largest(
    probe: Callable[[int], Profile], *, first: int, most: int, target: float = TARGET
) -> SearchResult:
    """Tries `first` positions, then twice as many, up to `most`. If `first` do not fit, it tries one.

    Raises:
        SetupError: not even one position fits.
    """
    tried: list[Profile] = []
    best: Profile | None = None
    size: int | None = min(first, most)
    while size is not None:
        profile = probe(size)
        logger.info(
            "positions %d x group %d, %d tokens a pass: peak %.2f GiB, %.1f%% of %.2f GiB, %s",
            profile.positions, profile.group, profile.tokens, profile.peak / 2**30,
            100 * profile.share, profile.available / 2**30, profile.result,
        )  # fmt: skip
        tried.append(profile)
        if profile.result == "fits":
            best = profile
            size = _larger(profile, most=most, target=target)
        else:
            size = _smaller(best, profile)
        if size in {p.positions for p in tried}:
            break
    if best is None:
        last = tried[-1]
        raise SetupError(
            f"not even one row of {last.row_tokens} tokens fits into {last.available / 2**30:.2f} GiB: "
            "lower --row-tokens, or turn on --gradient-checkpointing"
        )
    return SearchResult(tuple(tried), best)


def _larger(fits: Profile, *, most: int, target: float) -> int | None:
    if fits.positions >= most:
        return None
    held = fits.peak - fits.activations
    room = target * fits.available - held
    allowed = int(room / max(1, fits.activations) * fits.positions)
    size = min(2 * fits.positions, allowed, most)
    # A last step of less than an eighth is not worth its seconds.
    return size if size >= fits.positions + max(1, fits.positions // 8) else None


def _smaller(best: Profile | None, failed: Profile) -> int | None:
    if best is None:
        return 1 if failed.positions > 1 else None
    middle = (best.positions + failed.positions) // 2
    return middle if middle > best.positions else None


def resolve_micro_batch_tokens(settings: TrainerSettings, policy: Policy) -> TrainerSettings:
    """Returns `settings` with the tokens of a forward pass. If they are `auto`, they are measured.

    Rows are measured at their maximum length, or at `ROW`, and never more of them than a step has groups. A
    run that resumes on the same device uses its earlier result.
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
    """Tries (2, G), (4, G), (8, G) ... with one forward pass per step. Prints all of them and the choice."""
    make_folder(settings.run_dir, setting="--run-dir")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    policy = build_policy(settings)
    shape = GroupShape(settings.group_size, settings.prompt_tokens, settings.completion_tokens)
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


def _row(tokens: int, *, most: int | None) -> GroupShape:
    """Returns a group of `tokens` tokens. It has more completions if the model has only `most` positions."""
    prompt = tokens // 8
    completion = (tokens - prompt) // GROUP
    if most is not None and prompt + completion > most:
        prompt = most // 3
        completion = most - prompt
    return GroupShape((tokens - prompt) // completion, prompt, completion)


def _search(settings: TrainerSettings, policy: Policy, shape: GroupShape, *, most: int) -> SearchResult:
    return find_largest(lambda size: probe(policy, settings, shape, positions=size), first=FIRST, most=most)


def _said(choice: Profile) -> str:
    return (
        f"{choice.positions} positions x {choice.group} completions, {choice.positions * choice.group} "
        f"sequences, peak {choice.peak / 2**30:.2f} GiB ({choice.share:.1%})"
    )


def _asked(settings: TrainerSettings, shape: GroupShape, device: torch.device) -> dict[str, str]:
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
