"""Searches for the largest batch that fits, for `--micro-batch-tokens auto` and `rookery autobatch`.

Sizes double. A size whose peak would exceed the available memory is never run, because on a CPU the kernel
would kill the process. Only activations grow with the size, so the last measurement predicts the next peak.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.errors import InvalidInput, SetupError
from rookery.terminal import SafeConsole
from services.trainer.memory_probe import TARGET, GroupShape, Profile, probe
from services.trainer.model.base_model import check_length, max_positions
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.versions.files import make_folder, read_object

logger = logging.getLogger(__name__)

FILE = "memory_profiles.json"

FIRST = 2
"""Positions of the first configuration."""
GROUP = 4
"""Completions of each synthetic group."""
ROW = 1024
"""Tokens of a row if rows may be as long as a forward pass. Memory depends on the tokens of all rows."""


_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All configurations tried, in order, and the largest that fits."""

    profiles: tuple[Profile, ...]
    choice: Profile


def find_largest(probe: Callable[[int], Profile], *, first: int, most: int) -> SearchResult:
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
            "positions %d x group %d, %d tokens per pass: peak %.2f GiB, %.1f%% of %.2f GiB, %s",
            profile.positions, profile.group, profile.tokens, profile.peak / 2**30,
            100 * profile.share, profile.available / 2**30, profile.result,
        )  # fmt: skip
        tried.append(profile)
        if profile.result == "fits":
            best = profile
            size = _larger(profile, most=most)
        else:
            size = _smaller(best, profile)
        if size in {p.positions for p in tried}:
            break
    if best is None:
        last = tried[-1]
        raise SetupError(
            f"not even one row of {last.row_tokens} tokens fits into {last.available / 2**30:.2f} GiB: "
            "lower row_tokens, or turn on gradient_checkpointing"
        )
    return SearchResult(tuple(tried), best)


def _larger(fits: Profile, *, most: int) -> int | None:
    if fits.positions >= most:
        return None
    room = TARGET * fits.available - (fits.peak - fits.activations)
    allowed = int(room / max(1, fits.activations) * fits.positions)
    size = min(2 * fits.positions, allowed, most)
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
    that resumes on the same device uses its earlier result.
    """
    if settings.micro_batch_tokens:
        return settings
    shape = _group_shape(settings.row_tokens or ROW, most=max_positions(policy.model.config))
    choice = saved_choice(settings.run_dir, conditions=_conditions(settings, shape, policy))
    if choice is None:
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
    content = {
        "asked": _conditions(settings, shape, policy),
        "choice": asdict(result.choice),
        "profiles": [{**asdict(profile), "share": profile.share} for profile in result.profiles],
    }
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    temporary = settings.run_dir / f".{FILE}"
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(settings.run_dir / FILE)
    return result


def _summary(choice: Profile) -> str:
    return (
        f"{choice.positions} positions x {choice.group} completions, {choice.positions * choice.group} "
        f"sequences, peak {choice.peak / 2**30:.2f} GiB ({choice.share:.1%})"
    )


def _conditions(settings: TrainerSettings, shape: GroupShape, policy: Policy) -> dict[str, str]:
    """Returns the settings and the device that a profile depends on."""
    fields = (
        "model", "lora_rank", "lora_targets", "gradient_checkpointing", "adam_bits", "offload", "base_bits",
        "compile", "objective", "kl", "kl_report_every", "entropy_coefficient", "batch_groups",
    )  # fmt: skip
    on_gpu = policy.device.type == "cuda"
    return {
        **{field: str(getattr(settings, field)) for field in fields},
        "group": str(shape.group),
        "prompt_tokens": str(shape.prompt_tokens),
        "completion_tokens": str(shape.completion_tokens),
        "device": torch.cuda.get_device_name(policy.device) if on_gpu else "cpu",
        "in_bf16": str(policy.in_bf16),
    }


def table(profiles: Sequence[Profile]) -> str:
    """Returns a table of the configurations in the order they were tried, at most 80 characters wide."""
    ran = [profile for profile in profiles if profile.result != "out of memory"]
    lines = [f"positions x completions below {TARGET:.0%} of {profiles[0].available / _GIB:.2f} GiB"]
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
    return f"{size / _MIB:,.1f}"


def saved_choice(folder: Path, *, conditions: Mapping[str, str]) -> Profile | None:
    """Returns the choice of an earlier start with the same `conditions`, or None.

    Raises:
        InvalidInput: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    content = read_object(path, "asked", "choice")
    if content["asked"] != dict(conditions):
        return None
    try:
        choice = Profile(**content["choice"])
        if not choice.tokens >= 1:
            raise ValueError(f"{choice.tokens!r} tokens per pass")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{path} has no valid choice ({error}): delete it to measure again") from error
    return choice
