"""The error for files without any game to sample."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rookery.errors import SetupError
from services.data.pgn.files import Source
from services.data.pgn.games import SkippedGame, Split


def nothing_to_sample(
    sources: Sequence[Source],
    split: Split,
    skipped: Sequence[SkippedGame],
    *,
    rejected: Mapping[str, int] = MappingProxyType({}),
) -> SetupError:
    """Returns an error that names the files, the skipped games and how many games each filter rejected."""
    paths = ", ".join(repr(source.path) for source in sources)
    reasons = "; ".join(str(game) for game in skipped[:3]) or "no position to give"
    passed = ", ".join(f"{count} by {name}" for name, count in sorted(rejected.items()))
    return SetupError(
        f"nothing to sample in {paths} (split {split!r}): {len(skipped)} games skipped: {reasons}"
        + f"; games left out: {passed}" * bool(passed)
    )
