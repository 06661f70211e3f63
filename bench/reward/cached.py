"""Verdicts per second when every search is known: what the service costs beside its engines."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.reward.replica import Replica
from bench.reward.routes import Judged
from bench.reward.throughput import Effort, check, route
from bench.reward.usage import measure
from bench.reward.workload import Kind, Question, Workload, count_verdicts
from rookery.errors import RookeryError
from rookery.trace import Outcome, Verdict
from services.reward import LocalScorer
from services.reward.scorer import Item
from services.reward.settings import RewardSettings

NODES = 100
"""A search done once is free afterwards, however long it took."""


@dataclass(frozen=True, slots=True)
class Cached:
    """The rates of some rounds by one way in; `server_us` and `client_us` are processor time a verdict."""

    way: str
    kind: Kind
    positions: int
    verdicts_per_s: list[float]
    server_us: float
    client_us: float


def run_cached(workload: Workload, effort: Effort, *, positions: int, engines: int) -> list[Cached]:
    """gRPC, HTTP and the plain library, each asked about `positions` until it knows them, then again."""
    questions = workload.questions(0, positions)
    results = []
    for way in ("grpc", "stream", "http"):
        with Replica(engines=engines, nodes=NODES) as replica:
            results.append(_by_wire(way, replica, workload.kind, questions, effort))
    return [*results, _in_process(workload.kind, questions, effort, engines)]


def _by_wire(way: str, replica: Replica, kind: Kind, questions: Sequence[Question], effort: Effort) -> Cached:
    client = route(way, replica, effort)
    requests = client.prepare_batch(questions)
    check(questions, client.read(client.send(requests)))
    rates, server_s, client_s, done = [], 0.0, 0.0, 0
    for _ in range(effort.rounds):
        count, usage = measure(
            lambda: _repeat(lambda: client.send(requests), questions, effort.seconds), server=replica.pid
        )
        rates.append(count / usage.seconds)
        server_s, client_s, done = server_s + usage.server_cpu_s, client_s + usage.client_cpu_s, done + count
    return Cached(way, kind, len(questions), rates, 1e6 * server_s / done, 1e6 * client_s / done)


def _in_process(kind: Kind, questions: Sequence[Question], effort: Effort, engines: int) -> Cached:
    items = [Item(question.fen, answer.completion) for question in questions for answer in question.answers]
    chunks = [items[first : first + effort.batch] for first in range(0, len(items), effort.batch)]
    scorer = LocalScorer(RewardSettings(engines=engines, nodes=NODES))
    try:
        known = [verdict for chunk in chunks for verdict in scorer.score_batch(chunk)]
        check(questions, [_judged(verdict) for verdict in known])
        rates, cpu_s, done = [], 0.0, 0
        for _ in range(effort.rounds):
            count, usage = measure(
                lambda: _repeat(
                    lambda: [scorer.score_batch(chunk) for chunk in chunks], questions, effort.seconds
                )
            )
            rates.append(count / usage.seconds)
            cpu_s, done = cpu_s + usage.client_cpu_s, done + count
    finally:
        scorer.close()
    return Cached("in process", kind, len(questions), rates, 0.0, 1e6 * cpu_s / done)


def _repeat(work: Callable[[], object], questions: Sequence[Question], seconds: float) -> int:
    """Works on for `seconds`; the verdicts given."""
    deadline = time.monotonic() + seconds
    turns = 0
    while time.monotonic() < deadline:
        work()
        turns += 1
    return turns * count_verdicts(questions)


def _judged(verdict: Verdict | RookeryError) -> Judged:
    if isinstance(verdict, RookeryError):
        raise verdict
    return Judged(verdict.outcome is Outcome.LEGAL, verdict.best.uci if verdict.best else None)
