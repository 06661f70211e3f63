"""Every side beside the limit on the same positions, round by round.

In a round each side answers the same questions, all of them for the first time: each route has a
replica of its own. The limit stands in the middle of a round and the routes change places around it,
so that a machine whose speed drifts favours nobody. Rounds that strangers disturbed are repeated.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.reward.limit import Pipes, SimpleEngines, searches
from bench.reward.outcome import Case, Outcome, Round, Sample, is_calm
from bench.reward.routes import GrpcBatch, HttpBatch, Judged, Replica, Route, replica
from bench.reward.workload import Question, Workload, count_verdicts
from bench.usage import measure

PEER_PART = 4
"""The peer answers one in so many questions: it is slow, and its rate is all that is wanted."""

WARM_QUESTIONS = 64
REPEATS = 3
"""Rounds that may be tried for each calm one."""

_MISSES = 'rookery_reward_cache_total{result="miss"}'


@dataclass(frozen=True, slots=True)
class Effort:
    """`rounds` of about `seconds` for each side; size of the batches, and how many are in flight."""

    rounds: int
    seconds: float
    batch: int
    in_flight: int


ROUTES: dict[str, Callable[[Replica, Effort], Route]] = {
    "grpc": lambda replica, effort: GrpcBatch(replica, effort.batch, effort.in_flight),
    "http": lambda replica, effort: HttpBatch(replica, effort.batch, effort.in_flight),
}
"""The clients by name."""


def run_case(case: Case, effort: Effort, workload: Workload, engine: Path, *, peer: bool) -> Outcome:
    """Warms everything up, then measures until there are enough calm rounds or patience ends."""
    with ExitStack() as exits:
        sides = _Sides(exits, case, effort, engine, peer=peer)
        count = sides.warm_up(workload, effort)
        rounds: list[Round] = []
        while sum(map(is_calm, rounds)) < effort.rounds and len(rounds) < REPEATS * effort.rounds:
            questions = workload.questions(WARM_QUESTIONS + len(rounds) * count, count)
            if len(questions) < count:
                break
            rounds.append(sides.round(questions, turn=len(rounds)))
        return Outcome(case, rounds)


class _Sides:
    """Everything that is measured against each other, started and idle."""

    def __init__(self, exits: ExitStack, case: Case, effort: Effort, engine: Path, *, peer: bool) -> None:
        self._case = case
        self._replicas = {
            name: exits.enter_context(replica(engines=case.engines, nodes=case.nodes)) for name in case.routes
        }
        self._routes = {name: ROUTES[name](own, effort) for name, own in self._replicas.items()}
        self._pipes = exits.enter_context(Pipes(engine, case.engines))
        self._peer = (
            exits.enter_context(SimpleEngines(engine, case.engines, nodes=case.nodes)) if peer else None
        )

    def warm_up(self, workload: Workload, effort: Effort) -> int:
        """Uses everything once; how many questions undisturbed engines answer in the time of a round."""
        warm = self.round(workload.questions(0, WARM_QUESTIONS), turn=0)
        seconds = warm["limit"].usage.engine_cpu_s / self._case.engines
        count = int(WARM_QUESTIONS / seconds * effort.seconds)
        left = len(workload.fens) - WARM_QUESTIONS
        return max(1, min(count, left // effort.rounds))

    def round(self, questions: Sequence[Question], *, turn: int) -> Round:
        names = list(self._routes)
        order = names[turn % len(names) :] + names[: turn % len(names)]
        # After one route at least: its verdicts say which searches there are to make.
        middle = (len(order) + 1) // 2
        samples: Round = {}
        best: dict[str, str] = {}
        for name in order[:middle]:
            samples[name], best = self._through(name, questions)
        samples["limit"] = self._limit(questions, best)
        for name in order[middle:]:
            samples[name], _ = self._through(name, questions)
        _same_work(samples)
        if self._peer:
            samples["peer"] = self._by_peer(self._peer, questions[::PEER_PART])
        return samples

    def _through(self, name: str, questions: Sequence[Question]) -> tuple[Sample, dict[str, str]]:
        route, replica = self._routes[name], self._replicas[name]
        requests = route.prepare_batch(questions)
        misses = replica.metric(_MISSES)
        replies, usage = measure(lambda: route.send(requests), server=replica.pid, engines=replica.engines)
        searched = int(replica.metric(_MISSES) - misses)
        best = check(questions, route.read(replies))
        return Sample(count_verdicts(questions), searched, usage), best

    def _limit(self, questions: Sequence[Question], best: dict[str, str]) -> Sample:
        wanted = searches(questions, best)
        _, usage = measure(lambda: self._pipes.run(wanted, nodes=self._case.nodes), engines=self._pipes.pids)
        return Sample(count_verdicts(questions), len(wanted), usage)

    def _by_peer(self, peer: SimpleEngines, questions: Sequence[Question]) -> Sample:
        _, usage = measure(lambda: peer.run(questions), engines=peer.pids)
        legal = sum(answer.move is not None for question in questions for answer in question.answers)
        return Sample(count_verdicts(questions), 2 * legal, usage)


def _same_work(samples: Round) -> None:
    """The searches of the limit are the service's own, or the ratio means nothing."""
    wanted = samples["limit"].searches
    if others := {name: sample.searches for name, sample in samples.items() if sample.searches != wanted}:
        raise RuntimeError(f"the limit makes {wanted} searches, the service others: {others}")


def check(questions: Sequence[Question], judged: Sequence[Judged]) -> dict[str, str]:
    """The engine's choice by FEN. Raises `RuntimeError` if a verdict is missing, or says of a legal move that
    it is none, or the reverse."""
    asked = [(question.fen, answer) for question in questions for answer in question.answers]
    if len(asked) != len(judged):
        raise RuntimeError(f"{len(judged)} verdicts about {len(asked)} answers")
    best: dict[str, str] = {}
    for (fen, answer), verdict in zip(asked, judged, strict=True):
        if verdict.legal != (answer.move is not None):
            raise RuntimeError(f"judged wrongly: {answer.completion[-40:]!r} in {fen!r}")
        if verdict.best:
            best[fen] = verdict.best
    return best
