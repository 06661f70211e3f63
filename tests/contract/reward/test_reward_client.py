"""The client against the real servicer: nothing lost, nothing twice, nothing unbounded."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import grpc
import pytest

from rookery.clients import RewardClient, ScoreItem, reward
from rookery.clients.score_items import TRIES
from rookery.errors import EngineFault, InvalidInput, PeerFault, RookeryError
from rookery.trace import Verdict
from services.reward.requests import MAX_ITEMS
from services.reward.servicer import RewardServicer
from tests.conftest import free_port
from tests.contract.reward.gated import GatedScorer, verdict_of
from tests.servers import serve_reward
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "PAUSES_S", (0.05,) * (TRIES - 1))


@pytest.fixture
def gated() -> GatedScorer:
    return GatedScorer()


@asynccontextmanager
async def client_of(
    *targets: str, timeout_s: float = 30.0, patient: bool = False
) -> AsyncIterator[RewardClient]:
    target = f"ipv4:{','.join(targets)}"
    async with RewardClient(target, timeout_s=timeout_s, wait_for_ready=patient) as client:
        yield client


@asynccontextmanager
async def client_on(scorer: object, **how: object) -> AsyncIterator[RewardClient]:
    async with serve_reward(RewardServicer(scorer)) as target, client_of(target, **how) as client:
        yield client


def groups(count: int, *, size: int = 1) -> list[tuple[int, list[ScoreItem]]]:
    return [(number, [ScoreItem(f"fen {number}", str(number))] * size) for number in range(count)]


def expected(count: int, *, size: int = 1) -> dict[int, list[Verdict]]:
    return {number: [verdict_of(ScoreItem(f"fen {number}", str(number)))] * size for number in range(count)}


async def collected(stream: AsyncIterator[tuple[int, list[Verdict | RookeryError]]]) -> dict[int, list]:
    """What came back; fails when a key comes twice."""
    answers: dict[int, list] = {}
    async for key, slots in stream:
        assert key not in answers
        answers[key] = slots
    return answers


async def test_groups_come_back_with_their_keys(gated: GatedScorer) -> None:
    gated.all_open.set()
    async with client_on(gated) as client:
        assert await collected(client.stream(groups(100, size=3))) == expected(100, size=3)
        assert await collected(client.stream([])) == {}
        assert await collected(client.stream([(1, [])])) == {1: []}


async def test_groups_may_be_made_on_the_way(gated: GatedScorer) -> None:
    gated.all_open.set()

    async def made() -> AsyncIterator[tuple[int, list[ScoreItem]]]:
        for group in groups(20):
            await asyncio.sleep(0.001)
            yield group

    async with client_on(gated) as client:
        assert await collected(client.stream(made())) == expected(20)


async def test_groups_come_back_as_they_are_judged(gated: GatedScorer) -> None:
    async with client_on(gated) as client, aclosing(client.stream(groups(3))) as stream:
        coming = asyncio.ensure_future(anext(stream))
        for number in (2, 0, 1):
            gated.open(str(number))
            assert (await coming)[0] == number
            coming = asyncio.ensure_future(anext(stream, None))
        assert await coming is None


async def test_every_field_of_an_item_travels(gated: GatedScorer) -> None:
    gated.all_open.set()
    full = ScoreItem("f", "r", truncated=True, task="A", scheme="own", move="e2e4", target="t")
    items, judged = [full, ScoreItem("g", "s")], [*map(verdict_of, (full, ScoreItem("g", "s", scheme="all")))]
    async with client_on(gated) as client:
        assert await client.score(items, scheme="all") == judged
        assert await collected(client.stream([(0, items)], scheme="all")) == {0: judged}


async def test_items_in_flight_are_bounded(gated: GatedScorer) -> None:
    taken = 0

    def counted():
        nonlocal taken
        for group in groups(2_500, size=2):
            taken += 1
            yield group

    async with client_on(gated) as client:
        coming = asyncio.create_task(collected(client.stream(counted(), items=600)))
        await eventually(lambda: gated.judging == 600)
        assert taken == 301  # and one in hand
        gated.all_open.set()
        assert await coming == expected(2_500, size=2)
    assert gated.most_judging <= 600


async def test_a_slow_reader_slows_the_stream(gated: GatedScorer) -> None:
    gated.all_open.set()
    async with client_on(gated) as client, aclosing(client.stream(groups(500), items=10)) as stream:
        assert (await anext(stream))[1]
        await asyncio.sleep(0.1)
        assert len(gated.begun) <= 12
        assert len(await collected(stream)) == 499


class FaultyScorer:
    """Fails the items that say so, as often as they say."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def score_batch(self, items: Sequence[ScoreItem]) -> list[Verdict | RookeryError]:
        self.asked.append([item.response for item in items])
        return [self._judge(item) for item in items]

    def _judge(self, item: ScoreItem) -> Verdict | RookeryError:
        kind, _, times = item.response.partition(" ")
        before = sum(item.response in responses for responses in self.asked) - 1
        if kind == "bad":
            return InvalidInput(f"no fen {item.fen!r}")
        if kind == "fault" and before < int(times):
            return EngineFault("died")
        return verdict_of(item)


MIXED = [ScoreItem("f", response) for response in ("good", "fault 2", "bad", "fault 1")]


async def test_only_items_that_met_a_fault_are_asked_again() -> None:
    scorer = FaultyScorer()
    async with client_on(scorer) as client:
        good, second, bad, first = (await collected(client.stream([(0, MIXED)])))[0]
        assert good == verdict_of(ScoreItem("f", "good"))
        assert second == verdict_of(ScoreItem("f", "fault 2"))
        assert first == verdict_of(ScoreItem("f", "fault 1"))
        assert isinstance(bad, InvalidInput)
        assert str(bad) == "Invalid input: no fen 'f'"
        assert scorer.asked == [["good", "fault 2", "bad", "fault 1"], ["fault 2", "fault 1"], ["fault 2"]]
        scorer.asked.clear()
        assert len(await client.score([*MIXED[:2], *MIXED[3:]])) == 3
        assert scorer.asked == [["good", "fault 2", "fault 1"], ["fault 2", "fault 1"], ["fault 2"]]


async def test_a_lasting_fault_takes_the_place_of_its_verdict() -> None:
    scorer = FaultyScorer()
    async with client_on(scorer) as client:
        answers = await collected(client.stream([(0, [ScoreItem("f", "fault 9"), ScoreItem("f", "good")])]))
    fault, good = answers[0]
    assert isinstance(fault, PeerFault)
    assert str(fault) == "Engine fault: died"
    assert isinstance(good, Verdict)
    assert len(scorer.asked) == TRIES


async def test_a_service_that_restarts_loses_nothing(
    gated: GatedScorer, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    async with client_of(f"127.0.0.1:{port}", patient=True) as client:
        coming = asyncio.create_task(collected(client.stream(groups(300), items=100)))
        async with serve_reward(RewardServicer(gated), port=port):
            for number in range(40):
                gated.open(str(number))
            await eventually(lambda: len(gated.begun) == 140)
        await eventually(lambda: gated.cancelled == 100)
        gated.all_open.set()
        async with serve_reward(RewardServicer(gated), port=port):
            assert await coming == expected(300)
    assert len(gated.begun) == 400  # what was answered was not asked again
    assert caplog.text.count("failed") < 10  # of a hundred calls


async def test_a_service_that_stays_away_ends_the_stream() -> None:
    async with client_of(f"127.0.0.1:{free_port()}") as client:
        with pytest.raises(PeerFault, match=f"reward service: UNAVAILABLE .* after {TRIES} attempts"):
            await collected(client.stream(groups(10)))


async def test_an_answer_that_does_not_come_is_not_waited_for(gated: GatedScorer) -> None:
    gated.open("0")
    async with client_on(gated, timeout_s=0.3) as client:
        with pytest.raises(PeerFault, match=f"DEADLINE_EXCEEDED .* after {TRIES} attempts"):
            await collected(client.stream(groups(2)))
    assert gated.begun.count("0") == 1
    assert gated.begun.count("1") == TRIES


async def test_a_server_without_the_service_is_not_asked_again() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with client_of(f"127.0.0.1:{port}") as client:
        with pytest.raises(InvalidInput, match="UNIMPLEMENTED"):
            await collected(client.stream(groups(2)))
    await server.stop(None)


async def test_a_group_that_is_refused_whole_ends_the_stream(gated: GatedScorer) -> None:
    async with client_on(gated) as client:
        with pytest.raises(InvalidInput, match="1025 items in one batch: at most 1024"):
            await collected(client.stream(groups(1, size=MAX_ITEMS + 1)))
        with pytest.raises(InvalidInput, match="RESOURCE_EXHAUSTED"):
            await client.score([ScoreItem("fen", "x" * (17 << 20))])


async def test_a_source_that_fails_ends_the_stream(gated: GatedScorer) -> None:
    def failing():
        yield from groups(3)
        raise ZeroDivisionError

    async with client_on(gated) as client:
        with pytest.raises(ZeroDivisionError):
            await collected(client.stream(failing()))
        await eventually(lambda: gated.judging == 0)


async def test_a_reader_who_leaves_ends_the_work(gated: GatedScorer) -> None:
    async with client_on(gated) as client:
        async with aclosing(client.stream(groups(50))) as stream:
            coming = asyncio.ensure_future(anext(stream))
            await eventually(lambda: gated.judging == 50)
            gated.open("5")
            assert (await coming)[0] == 5
        await eventually(lambda: gated.judging == 0)
        assert gated.cancelled == 49


async def test_replicas_share_the_groups_and_cover_for_each_other() -> None:
    replicas = [GatedScorer(), GatedScorer()]
    async with AsyncExitStack() as stack, AsyncExitStack() as first:
        targets = [await first.enter_async_context(serve_reward(RewardServicer(replicas[0])))]
        targets += [await stack.enter_async_context(serve_reward(RewardServicer(replicas[1])))]
        client = await stack.enter_async_context(client_of(*targets))
        for replica in replicas:
            replica.all_open.set()
        await until_both_answer(client, replicas)
        assert await collected(client.stream(groups(3_000, size=4), items=400)) == expected(3_000, size=4)
        for replica in replicas:
            assert len(replica.begun) > 300
            replica.all_open.clear()
        coming = asyncio.create_task(collected(client.stream(groups(200), items=100)))
        await eventually(lambda: all(replica.judging for replica in replicas))
        await first.aclose()
        replicas[1].all_open.set()
        assert await coming == expected(200)
        assert replicas[0].cancelled > 0


async def test_batches_go_round_the_replicas_and_survive_one() -> None:
    replicas = [GatedScorer(), GatedScorer()]
    async with AsyncExitStack() as stack, AsyncExitStack() as first:
        targets = [await first.enter_async_context(serve_reward(RewardServicer(replicas[0])))]
        targets += [await stack.enter_async_context(serve_reward(RewardServicer(replicas[1])))]
        client = await stack.enter_async_context(client_of(*targets))
        for replica in replicas:
            replica.all_open.set()
        await until_both_answer(client, replicas)
        before = [len(replica.begun) for replica in replicas]
        asked = [client.score(items) for _, items in groups(40)]
        assert await asyncio.gather(*asked) == list(expected(40).values())
        assert [len(replica.begun) - b for replica, b in zip(replicas, before, strict=True)] == [20, 20]
        await first.aclose()
        asked = [client.score(items) for _, items in groups(40)]
        assert await asyncio.gather(*asked) == list(expected(40).values())


async def until_both_answer(client: RewardClient, replicas: list[GatedScorer]) -> None:
    """gRPC connects to its addresses one after the other."""
    async with asyncio.timeout(20.0):
        while not all(replica.begun for replica in replicas):
            await client.score([ScoreItem("f", "hello")])
