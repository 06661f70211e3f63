"""The figures as tables for people and as JSON for machines."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.reward.cached import Cached
from bench.reward.memory import Memory
from bench.reward.outcome import CALM_CORES, Case, Outcome, Sample, is_calm
from bench.reward.target import Target

NAMES = {
    "limit": "raw UCI pipes",
    "grpc": "gRPC ScoreBatch",
    "stream": "gRPC ScoreStream",
    "http": "HTTP batch",
    "client": "RewardClient",
    "grpc-score": "gRPC Score",
    "http-score": "HTTP score",
    "peer": "python-chess",
}


def throughput_table(outcome: Outcome) -> Table:
    """A row for each side of a case."""
    table = Table(
        "side", "verdicts/s", "of the limit", "range", "by CPU", "server", "client", "engine", "idle",
        "others",
        title=_title(outcome),
        caption="medians; of the limit: by the clock; server, client, engine: us of CPU a verdict; "
        "idle, others: cores that nobody and that strangers used",
    )  # fmt: skip
    for side in ("limit", *outcome.case.routes, "peer"):
        if side in outcome.rounds[0]:
            table.add_row(*_throughput_row(outcome, side))
    return table


def _title(outcome: Outcome) -> str:
    limit = outcome.rounds[0]["limit"]
    calm = sum(map(is_calm, outcome.rounds))
    return (
        f"{_case(outcome.case)}: {limit.verdicts:,} verdicts by {limit.searches:,} searches a round, "
        f"{len(outcome.rounds)} rounds, {calm} calm"
    )


def _case(case: Case) -> str:
    return f"{case.kind}, {case.nodes:,} nodes, {case.engines} engine{'s' * (case.engines > 1)}"


def _throughput_row(outcome: Outcome, side: str) -> list[str]:
    ratios = outcome.ratios(side)
    return [
        NAMES[side],
        f"{outcome.median(side, lambda sample: sample.verdicts_per_s):,.0f}",
        f"{statistics.median(ratios):.3f}",
        f"{min(ratios):.3f}-{max(ratios):.3f}",
        f"{outcome.cpu_ratio(side):.3f}",
        *_cpu_us(outcome, side),
        f"{outcome.median(side, lambda sample: sample.usage.idle_cores):.2f}",
        f"{outcome.median(side, lambda sample: sample.usage.others_cores):.2f}",
    ]


def _cpu_us(outcome: Outcome, side: str) -> list[str]:
    """Of server, client and engines, for a verdict."""

    def each_us(sample: Sample, seconds: float) -> float:
        return 1e6 * seconds / sample.verdicts

    return [
        f"{outcome.median(side, lambda s: each_us(s, s.usage.server_cpu_s)):.0f}",
        f"{outcome.median(side, lambda s: each_us(s, s.usage.client_cpu_s)):.0f}",
        f"{outcome.median(side, lambda s: each_us(s, s.usage.engine_cpu_s)):.0f}",
    ]


def growth_table(outcomes: Sequence[Outcome]) -> Table:
    """How gRPC ScoreBatch and the limit grow with the engines."""
    table = Table(
        "nodes", "engines", "limit verdicts/s", "gRPC verdicts/s", "of the limit", "times one engine's",
        "calm rounds",
        title="Growth with engines: gRPC ScoreBatch, distinct positions",
    )  # fmt: skip
    rows = [o for o in outcomes if o.case.kind == "distinct" and "grpc" in o.case.routes]
    ones = {o.case.nodes: o for o in rows if o.case.engines == 1}
    for outcome in sorted(rows, key=lambda o: (o.case.nodes, o.case.engines)):
        limit, ours = _rate(outcome, "limit"), _rate(outcome, "grpc")
        one = ones.get(outcome.case.nodes)
        table.add_row(
            f"{outcome.case.nodes:,}",
            str(outcome.case.engines),
            f"{limit:,.0f}",
            f"{ours:,.0f}",
            f"{statistics.median(outcome.ratios('grpc')):.3f}",
            f"{ours / _rate(one, 'grpc'):.2f} (limit {limit / _rate(one, 'limit'):.2f})" if one else "-",
            f"{sum(map(is_calm, outcome.rounds))} of {len(outcome.rounds)}",
        )
    return table


def _rate(outcome: Outcome, side: str) -> float:
    return outcome.median(side, lambda sample: sample.verdicts_per_s)


def latency_table(outcome: Outcome, *, callers: int) -> Table:
    """Milliseconds, beside the least mean that the engines allow."""
    least_ms = 1000 * callers / _rate(outcome, "limit")
    table = Table(
        "way", "p50 ms", "p99 ms", "mean ms", "verdicts/s", "of the limit", "server", "client", "engine",
        title=f"Latency of single answers, {callers} callers in a closed loop, {_title(outcome)}",
        caption=f"on the bare engines the mean would be {least_ms:.0f} ms",
    )  # fmt: skip
    for side in outcome.case.routes:
        waits = [one[side].latency for one in outcome.counted]
        table.add_row(
            NAMES[side],
            f"{statistics.median(wait.p50_ms for wait in waits if wait):.0f}",
            f"{statistics.median(wait.p99_ms for wait in waits if wait):.0f}",
            f"{statistics.median(wait.mean_ms for wait in waits if wait):.0f}",
            f"{_rate(outcome, side):,.0f}",
            f"{statistics.median(outcome.ratios(side)):.3f}",
            *_cpu_us(outcome, side),
        )
    return table


def cached_table(rows: Sequence[Cached]) -> Table:
    """The same items again."""
    table = Table(
        "way", "workload", "positions", "verdicts/s", "range", "server", "client",
        title="Cached: the same items again; server and client in us of CPU a verdict",
    )  # fmt: skip
    for row in rows:
        rates = row.verdicts_per_s
        table.add_row(
            NAMES.get(row.way, row.way),
            row.kind,
            f"{row.positions:,}",
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f}-{max(rates):,.0f}",
            f"{row.server_us:.0f}" if row.server_us else "-",
            f"{row.client_us:.0f}",
        )
    return table


def memory_table(memory: Memory) -> Table:
    """Megabytes."""
    table = Table("memory", "MB", title="Memory")
    table.add_row("Python process at rest", f"{memory.process_mb:.1f}")
    table.add_row("an engine, resident", f"{memory.engine_rss_mb:.1f}")
    table.add_row("an engine, its own pages", f"{memory.engine_own_mb:.1f}")
    table.add_row(f"1,000 queued items of {memory.item_kb:.1f} kB", f"{memory.queued_mb_per_1000:.1f}")
    table.add_row("1,000 positions remembered", f"{memory.remembered_mb_per_1000:.1f}")
    return table


def show_targets(console: Console, found: Sequence[Target]) -> None:
    """One line each."""
    for target in found:
        form = ",.0f" if target.least > 1 else ".3f"
        verdict = "[green]met   [/]" if target.met else "[red]missed[/]"
        figures = f"{target.measured:{form}}, promised {target.least:{form}}"
        console.print(f"{verdict} {target.name}: {figures} ({target.note})")


def machine() -> dict[str, Any]:
    """Where the figures were taken."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "calm_cores": CALM_CORES,
    }


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """All samples, with the ratios worked out."""
    sides = outcome.rounds[0]
    return {
        **asdict(outcome),
        "calm": [is_calm(one) for one in outcome.rounds],
        "of_the_limit": {side: statistics.median(outcome.ratios(side)) for side in sides},
        "of_the_limit_by_cpu": {side: outcome.cpu_ratio(side) for side in sides},
    }
