"""Where the server's Python goes: one workload under cProfile.

It goes by the clock and makes small functions look bigger than they are; the start of the service,
imports above all, is in it.
"""

import pstats
import tempfile
from pathlib import Path

from bench.reward.outcome import Case
from bench.reward.replica import Replica
from bench.reward.throughput import Effort, check, route
from bench.reward.usage import measure
from bench.reward.workload import Workload, count_verdicts

ROWS = 40


def profile(case: Case, effort: Effort, workload: Workload, *, questions: int) -> None:
    """Prints the functions that cost most, by their own time and with what they call."""
    asked = workload.questions(0, questions)
    with tempfile.TemporaryDirectory(prefix="bench-profile-") as folder:
        path = Path(folder) / "reward.prof"
        with Replica(engines=case.engines, nodes=case.nodes, profile=path) as replica:
            client = route(case.routes[0], replica, effort)
            requests = client.prepare_batch(asked)
            replies, usage = measure(
                lambda: client.send(requests), server=replica.pid, engines=replica.engines
            )
            check(asked, client.read(replies))
        each_us = 1e6 * usage.server_cpu_s / count_verdicts(asked)
        print(f"{case}: {count_verdicts(asked)} verdicts, {each_us:.0f} us of server each, profiled")
        stats = pstats.Stats(str(path)).strip_dirs()
        for order in ("tottime", "cumulative"):
            stats.sort_stats(order).print_stats(ROWS)
