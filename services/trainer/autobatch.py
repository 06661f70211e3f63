"""Searches for the largest batch that fits, for `--micro-batch-tokens auto` and `rookery autobatch`.

Sizes double. A size whose peak would exceed the limit is never run, because on a CPU the kernel would kill
the process. Only activations grow with the size, so the last measurement predicts the next peak. On a CPU,
where a large step may take minutes, `auto` measures a single position and computes how many fit.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console

from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.terminal import SafeConsole
from services.trainer.memory_probe import GroupShape, probe
from services.trainer.model.base_model import check_length, max_positions
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.records.memory import MIB
from services.trainer.records.profile import (
    FILE,
    GIB,
    SHARES,
    Profile,
    computed,
    device_name,
    save_choice,
    saved_choice,
    too_little,
)
from services.trainer.versions.files import make_folder

logger = logging.getLogger(__name__)

FIRST = 2
"""Positions of the first configuration."""
GROUP = 4
"""Completions of each synthetic group."""
ROW = 1024
"""Tokens of a row if rows may be as long as a forward pass. Memory depends on the tokens of all rows."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All configurations tried, in order, and the largest that fits."""

    profiles: tuple[Profile, ...]
    choice: Profile


def find_largest(probe: Callable[[int], Profile], *, first: int, most: int) -> SearchResult:
    """Tries `first` positions, then twice as many, up to `most`. If `first` do not fit, it tries one. Raises
    `SetupError` if not even one position fits."""
    tried: list[Profile] = []
    best: Profile | None = None
    size: int | None = min(first, most)
    while size is not None:
        profile = probe(size)
        peak = f"{profile.peak / GIB:.2f} GiB, {profile.share:.1%} of {profile.available / GIB:.2f} GiB"
        group = f"{profile.group}, {profile.tokens} tokens per pass"
        logger.info("positions %d x group %s: peak %s, %s", profile.positions, group, peak, profile.result)
        tried.append(profile)
        if profile.result == "fits":
            best = profile
            size = _larger(profile, most=most)
        else:
            size = _smaller(best, profile)
        if size in {p.positions for p in tried}:
            break
    if best is None:
        raise too_little(tried[-1])
    return SearchResult(tuple(tried), best)


def _larger(fits: Profile, *, most: int) -> int | None:
    if fits.positions >= most:
        return None
    size = min(2 * fits.positions, fits.allowed, most)
    # An increase of less than an eighth is not worth the time.
    return size if size >= fits.positions + max(1, fits.positions // 8) else None


def _smaller(best: Profile | None, failed: Profile) -> int | None:
    if best is None:
        return 1 if failed.positions > 1 else None
    middle = (best.positions + failed.positions) // 2
    return middle if middle > best.positions else None


def resolve_micro_batch_tokens(settings: TrainerSettings, policy: Policy) -> TrainerSettings:
    """Returns `settings` with the tokens of a forward pass. If they are `auto`, they are measured.

    Rows are measured at their maximum length, or at `ROW`, up to as many rows as a step has groups. A run
    that resumes on the same device uses its earlier result. Raises `SetupError` if not even one row fits.
    """
    if settings.micro_batch_tokens:
        return settings
    shape = _group_shape(settings.row_tokens or ROW, most=max_positions(policy.model.config))
    conditions = _conditions(settings, shape, policy)
    choice = saved_choice(settings.run_dir, conditions=conditions)
    if choice is None and policy.device.type == "cpu":
        profile = probe(policy, settings, shape, positions=1)
        choice = computed(profile, most=settings.batch_groups)
        save_choice(settings.run_dir, conditions=conditions, choice=choice, profiles=[profile])
    elif choice is None:
        choice = _search(settings, policy, shape, most=settings.batch_groups).choice
    logger.info("using %d tokens per forward pass: %s", choice.tokens, _summary(choice))
    return settings.model_copy(update={"micro_batch_tokens": choice.tokens})


def run(settings: AutobatchSettings, console: Console | None = None) -> Profile:
    """Tries (2, G), (4, G), (8, G) ... in one forward pass per step. Prints all of them and the choice."""
    make_folder(settings.run_dir, setting="--run-dir")
    if settings.threads:
        torch.set_num_threads(settings.threads)
    policy = build_policy(settings)
    shape = GroupShape(settings.group_size, settings.prompt_tokens, settings.completion_tokens)
    check_length(policy.model, shape.sequence_tokens, name="--prompt-tokens and --completion-tokens")
    search = _search(settings, policy, shape, most=settings.most_positions)
    choice = search.choice
    lines = (
        table(search.profiles),
        f"\nchoice: {_summary(choice)}",
        f"--batch-groups {choice.positions} --micro-batch-tokens {choice.tokens}",
        f"profiles in {settings.run_dir / FILE}",
    )
    (console or SafeConsole()).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return choice


def _group_shape(tokens: int, *, most: int | None) -> GroupShape:
    """Returns a group of `tokens` tokens. It has more completions if the model has only `most` positions."""
    prompt = tokens // 8
    completion = (tokens - prompt) // GROUP
    if most is not None and prompt + completion > most:
        prompt = most // 3
        completion = most - prompt
    return GroupShape((tokens - prompt) // completion, prompt, completion)


def _search(settings: TrainerSettings, policy: Policy, shape: GroupShape, *, most: int) -> SearchResult:
    """Searches, and writes memory_profiles.json."""
    result = find_largest(lambda size: probe(policy, settings, shape, positions=size), first=FIRST, most=most)
    conditions = _conditions(settings, shape, policy)
    save_choice(settings.run_dir, conditions=conditions, choice=result.choice, profiles=result.profiles)
    return result


def _summary(choice: Profile) -> str:
    return (
        f"{choice.positions} positions x {choice.group} completions, {choice.positions * choice.group} "
        f"sequences, peak {choice.peak / GIB:.2f} GiB ({choice.share:.1%})"
    )


def _conditions(settings: TrainerSettings, shape: GroupShape, policy: Policy) -> dict[str, str]:
    """Returns what a profile depends on: settings, the device, and the share of its memory."""
    fields = (
        "model", "lora_rank", "lora_targets", "gradient_checkpointing", "adam_bits", "offload", "base_bits",
        "compile", "objective", "kl", "kl_report_every", "entropy_coefficient", "batch_groups",
    )  # fmt: skip
    return {
        **{field: str(getattr(settings, field)) for field in fields},
        "group": str(shape.group),
        "prompt_tokens": str(shape.prompt_tokens),
        "completion_tokens": str(shape.completion_tokens),
        "device": device_name(policy.device),
        "share": str(SHARES[policy.device.type]),
        "in_bf16": str(policy.in_bf16),
    }


def table(profiles: Sequence[Profile]) -> str:
    """Returns a table of the configurations in the order they were tried, at most 80 characters wide."""
    ran = [profile for profile in profiles if profile.result != "out of memory"]
    limit, available = profiles[0].limit / GIB, profiles[0].available / GIB
    lines = [f"positions x completions below {limit:.2f} of {available:.2f} GiB"]
    if ran:
        # These are the same for all configurations: only activations grow.
        parts = {"weights": ran[0].parameters, "gradients": ran[0].gradients, "Adam": ran[0].adam}
        lines.append(", ".join(f"{name} {_mib(size)}" for name, size in parts.items()) + " MiB")
    lines += ["", _line(("batch", "tokens", "activations", "peak MiB", "share", "tokens/s"))]
    return "\n".join([*lines, *map(_profile_line, profiles)])


def _profile_line(profile: Profile) -> str:
    batch, tokens = f"({profile.positions}, {profile.group})", f"{profile.tokens:,}"
    if profile.result == "out of memory":
        return _line((batch, tokens, "-", "-", "-", "-"), profile.result)
    memory = (_mib(profile.activations), _mib(profile.peak), f"{profile.share:.1%}")
    return _line((batch, tokens, *memory, f"{profile.tokens_per_s:,.0f}"), profile.result)


def _line(numbers: Sequence[str], result: str = "") -> str:
    widths = (9, 11, 12, 12, 7, 10)
    aligned = "".join(f"{cell:>{width}}" for cell, width in zip(numbers, widths, strict=True))
    return f"{aligned}  {result}".rstrip()


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f}"
