"""The importance ratios of the tokens that a step was trained on, in a file for each step, for the viewer.

    ratios/policy-v000042.jsonl.gz      of the step that made version 42

Each line is a group, `{"group": ID, "ratios": [[1.0, 0.97, ...], null, ...]}`: a list for each answer, in the
order of the archive, and null for an answer that carried no loss.
"""

import gzip
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from rookery.trace import TraceGroup, policy_name
from services.trainer.losses.statistics import TokenRatios
from services.trainer.records.memory import MIB

logger = logging.getLogger(__name__)

FOLDER = "ratios"
_DIGITS = 4


def write(
    run_dir: Path, groups: Sequence[TraceGroup], ratios: TokenRatios, *, version: int, limit_mb: int
) -> None:
    """Writes the file of a step, and deletes the oldest ones beyond `limit_mb` MiB in total.

    The newest file stays, however large; with 0, none is written. If the disk fails, the error is logged,
    because only the viewer reads these files.
    """
    if not limit_mb:
        return
    try:
        _write(run_dir / FOLDER, groups, ratios, version=version, limit_mb=limit_mb)
    except OSError as error:
        logger.error("the ratios of step %d are not kept: %s", version, error)


def _write(
    folder: Path, groups: Sequence[TraceGroup], ratios: TokenRatios, *, version: int, limit_mb: int
) -> None:
    folder.mkdir(exist_ok=True)
    temporary = folder / ".ratios.tmp"
    with gzip.open(temporary, "wt", compresslevel=1) as file:
        for group in groups:
            own = [
                [round(ratio, _DIGITS) for ratio in ratios[trace.id]] if trace.id in ratios else None
                for trace in group.traces
            ]
            file.write(json.dumps({"group": group.id, "ratios": own}) + "\n")
    newest = temporary.replace(folder / f"{policy_name(version)}.jsonl.gz")
    left = limit_mb * MIB
    for path in sorted(folder.glob("policy-v*"), reverse=True):
        left -= path.stat().st_size
        if left < 0 and path != newest:
            path.unlink()
