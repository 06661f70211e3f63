"""The importance ratios of the tokens that a step was trained on, in a file for each step, for the viewer.

    ratios/policy-v000042.jsonl.gz      of the step that made version 42

Each line is a group, `{"group": ID, "ratios": [[1.0, 0.97, ...], null, ...]}`: a list for each answer, in the
order of the archive, and null for an answer that carried no loss.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from rookery.trace import TraceGroup, policy_name
from services.trainer.losses.statistics import TokenRatios
from services.trainer.records.memory import MIB

FOLDER = "ratios"
_DIGITS = 4


def write(
    run_dir: Path, groups: Sequence[TraceGroup], ratios: TokenRatios, *, version: int, limit_mb: int
) -> None:
    """Writes the file of a step, and deletes the oldest ones beyond `limit_mb` MiB in total."""
    if not limit_mb:
        return
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    temporary = folder / ".ratios.tmp"
    with gzip.open(temporary, "wt", compresslevel=1) as file:
        for group in groups:
            own = [
                [round(ratio, _DIGITS) for ratio in ratios[trace.id]] if trace.id in ratios else None
                for trace in group.traces
            ]
            file.write(json.dumps({"group": group.id, "ratios": own}) + "\n")
    temporary.replace(folder / f"{policy_name(version)}.jsonl.gz")
    left = limit_mb * MIB
    for path in sorted(folder.glob("policy-v*"), reverse=True):
        left -= path.stat().st_size
        if left < 0:
            path.unlink()
