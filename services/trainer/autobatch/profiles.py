"""What each tried configuration held in memory: records, table, file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.table import Table

FILE = "memory_profiles.json"

Result: TypeAlias = Literal["fits", "too large", "out of memory"]

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Profile:
    """One configuration: `positions` rows of `group` completions each in one forward pass.

    Bytes: `parameters` of the whole model, `gradients` and `adam` of what is trained, `activations`
    whatever else the steps added at their peak; `peak` is all that the process (on a GPU: torch) held.
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
        """Of one forward pass."""
        return self.positions * self.row_tokens

    @property
    def share(self) -> float:
        """The peak's, of what is available."""
        return self.peak / self.available


def table(profiles: Sequence[Profile], *, target: float) -> Table:
    """A row for each configuration, in the order they were tried."""
    made = Table(
        title=f"Positions x completions below {target:.0%} of {profiles[0].available / _GIB:.2f} GiB; MiB",
        title_justify="left", box=SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    for head in (
        "batch", "tokens", "weights", "gradients", "Adam", "activations", "peak", "share", "tokens/s", "",
    ):  # fmt: skip
        made.add_column(head, justify="right", no_wrap=True)
    for profile in profiles:
        ran = profile.result != "out of memory"
        parts = (profile.parameters, profile.gradients, profile.adam, profile.activations, profile.peak)
        made.add_row(
            f"({profile.positions}, {profile.group})",
            f"{profile.tokens:,}",
            *(f"{part / _MIB:,.1f}" if ran else "-" for part in parts),
            f"{profile.share:.1%}" if ran else "-",
            f"{profile.tokens_per_s:,.0f}" if ran else "-",
            profile.result,
        )
    return made


def save(folder: Path, profiles: Sequence[Profile], choice: Profile, *, asked: Mapping[str, str]) -> None:
    """Replaces the file; `asked` says what the profiles are of."""
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
    """The choice of an earlier start that asked the same."""
    path = folder / FILE
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return Profile(**content["choice"]) if content["asked"] == dict(asked) else None
