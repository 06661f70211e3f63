"""Grows a configuration until the next would pass the target, then takes the largest in between.

Sizes double. A size whose peak would pass what is available is never run: on a CPU nobody catches the
kernel's out-of-memory killer. Activations grow with the size and nothing else does, so the last
measurement tells the next peak.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rookery.errors import SetupError
from services.trainer.autobatch.profiles import Profile

logger = logging.getLogger(__name__)

TARGET = 0.85
"""Share of the available memory: the rest is for fragments and for steps less regular than the probe's."""


@dataclass(frozen=True, slots=True)
class Found:
    """All configurations tried, in order, and the largest that fits."""

    profiles: tuple[Profile, ...]
    choice: Profile


def search(probe: Callable[[int], Profile], *, first: int, most: int, target: float = TARGET) -> Found:
    """Tries `first` positions, then twice as many, up to `most`; one if even `first` do not fit.

    Raises:
        SetupError: not even one position fits.
    """
    tried: list[Profile] = []
    best: Profile | None = None
    size: int | None = min(first, most)
    while size is not None:
        profile = _said(probe(size))
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
    return Found(tuple(tried), best)


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


def _said(profile: Profile) -> Profile:
    logger.info(
        "positions %d x group %d, %d tokens a pass: peak %.2f GiB, %.1f%% of %.2f GiB, %s",
        profile.positions, profile.group, profile.tokens, profile.peak / 2**30,
        100 * profile.share, profile.available / 2**30, profile.result,
    )  # fmt: skip
    return profile
