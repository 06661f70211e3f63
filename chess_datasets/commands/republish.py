"""`rookery data republish ARCHIVE`: adds an archive's groups to a run's stream again, in their order.

`rookery replay` uses it. The run's trainer gets the groups as it got them when they were recorded.
"""

import sys
import time
from collections import deque
from collections.abc import Sequence

from chess_datasets.commands.settings.archives import RepublishSettings
from chess_datasets.jobs import Progress, batched
from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery.errors import SetupError
from rookery.masking import printable
from rookery.streams import RunStreams
from rookery.trace import TraceGroup

AT_ONCE = 64
"""Groups added together."""
WAITING = 512
"""Groups in the stream at most, because a large archive does not fit into Redis."""
POLL_S = 0.1


def republish(settings: RepublishSettings) -> int:
    """Runs the command and returns the exit status."""
    archive = TraceArchive(open_folder(settings.archive))
    runs = [settings.run] if settings.run else archive.runs()
    if len(runs) != 1:
        raise SetupError(f"--run: {settings.archive} has the runs {', '.join(runs) or '(none)'}")
    total = archive.count(run=runs[0])
    if not total:
        raise SetupError(f"{settings.archive} has no groups of run {runs[0]!r}: {', '.join(archive.runs())}")
    run = RunStreams(settings.redis_url, settings.to or runs[0])
    run.redis.ping(once=True)
    groups = archive.groups(run=runs[0])
    with Progress() as progress:
        progress.begin("republish", unit="groups", total=total)
        for chunk in batched(groups, AT_ONCE):
            while run.groups.length() >= WAITING:
                time.sleep(POLL_S)
            add_groups(run, chunk)
            progress.advance(len(chunk))
    sys.stdout.write(printable(f"{total} groups of run {runs[0]}\n"))
    return 0


def add_groups(run: RunStreams, groups: Sequence[TraceGroup]) -> None:
    """Adds the groups to `traces`, each by its position, as rollouts do. No rollouts may run beside it."""
    run.positions.add([group.position for group in groups], cursor=run.positions.cursor())
    waiting = deque(groups)
    while waiting:
        entries = run.positions.read(consumer="replay", count=len(waiting), block_s=1.0)
        for entry in entries:
            group = waiting.popleft()
            version = ", ".join(group.reward_versions)
            run.groups.publish(group, entry_id=entry.id, accept=version)
