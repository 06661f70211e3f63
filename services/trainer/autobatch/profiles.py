"""The memory of each configuration: records, the table that is printed, and memory_profiles.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rookery.errors import InvalidInput
from services.trainer.versions.files import read_object

FILE = "memory_profiles.json"

Result: TypeAlias = Literal["fits", "too large", "out of memory"]

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Profile:
    """The measurement of `positions` rows with `group` completions each in one forward pass.

    In bytes: `parameters` of the whole model, `gradients` and `adam` of the trained part, `activations`
    everything else at the peak of the steps. `peak` is the total of the process (of torch, on a GPU).
    """

    positions: int
    group: int
    row_tokens: int
    parameters: int
    gradients: int
    adam: int
    activations: int
    peak: int
    available: int
    tokens_per_s: float
    result: Result

    @property
    def tokens(self) -> int:
        """The tokens of one forward pass."""
        return self.positions * self.row_tokens

    @property
    def share(self) -> float:
        """The peak as a share of the available memory."""
        return self.peak / self.available


def table(profiles: Sequence[Profile], *, target: float) -> str:
    """Returns a table of the configurations in the order they were tried, at most 80 characters wide."""
    ran = [profile for profile in profiles if profile.result != "out of memory"]
    lines = [f"positions x completions below {target:.0%} of {profiles[0].available / _GIB:.2f} GiB"]
    if ran:
        # These are the same in all of them: only activations grow.
        parts = {"weights": ran[0].parameters, "gradients": ran[0].gradients, "Adam": ran[0].adam}
        lines.append(", ".join(f"{name} {_mib(size)}" for name, size in parts.items()) + " MiB")
    lines += ["", _line("batch", "tokens", "activations", "peak MiB", "share", "tokens/s", "")]
    return "\n".join([*lines, *map(_row, profiles)])


def _row(profile: Profile) -> str:
    batch, tokens = f"({profile.positions}, {profile.group})", f"{profile.tokens:,}"
    if profile.result == "out of memory":
        return _line(batch, tokens, "-", "-", "-", "-", profile.result)
    held = (_mib(profile.activations), _mib(profile.peak), f"{profile.share:.1%}")
    return _line(batch, tokens, *held, f"{profile.tokens_per_s:,.0f}", profile.result)


def _line(*cells: str) -> str:
    widths = (9, 11, 12, 12, 7, 10)
    *numbers, result = cells
    aligned = "".join(f"{cell:>{width}}" for cell, width in zip(numbers, widths, strict=True))
    return f"{aligned}  {result}".rstrip()


def _mib(size: int) -> str:
    return f"{size / _MIB:,.1f}"


def save(folder: Path, profiles: Sequence[Profile], choice: Profile, *, asked: Mapping[str, str]) -> None:
    """Writes the file. `asked` are the settings that the profiles depend on."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "asked": dict(asked),
        "choice": asdict(choice),
        "profiles": [{**asdict(profile), "share": profile.share} for profile in profiles],
    }
    fresh = folder / f".{FILE}"
    fresh.write_text(json.dumps(content, indent=2) + "\n")
    fresh.replace(folder / FILE)


def saved_choice(folder: Path, *, asked: Mapping[str, str]) -> Profile | None:
    """Returns the choice of an earlier start with the same settings, `asked`; None if there is none.

    Raises:
        InvalidInput: the file is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return None
    content = read_object(path, "asked", "choice")
    if content["asked"] != dict(asked):
        return None
    try:
        choice = Profile(**content["choice"])
        if not choice.tokens >= 1:
            raise ValueError(f"{choice.tokens!r} tokens a pass")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{path} has no choice ({error}): delete it to measure again") from error
    return choice
