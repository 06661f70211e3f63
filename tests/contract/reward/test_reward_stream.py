"""The stream of scores: answers as they come, a bounded window, ends that leave no work behind."""

import asyncio
import signal
from collections.abc import AsyncIterator

import grpc
import httpx
import pytest

from rookery.codec import verdict_from_proto
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward import servicer as stream_module
from services.reward.requests import MAX_ITEMS
from services.reward.scorer import Item, Scorer
from services.reward.servicer import WINDOW, RewardServicer
from tests.contract.reward.gated import GatedScorer, verdict_of
from tests.servers import serve_reward
from tests.waiting import eventually

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
ANSWERS = [r"\boxed{Qxf7#}", r"\boxed{a3}", r"\boxed{Ke5}", "nothing"]

Stub = reward_pb2_grpc.RewardServiceStub


def request(number: int, *responses: str, fen: str = FEN) -> reward_pb2.ScoreStreamRequest:
    items = [reward_pb2.ScoreRequest(fen=fen, response=response) for response in responses]
    return reward_pb2.ScoreStreamRequest(id=number, items=items)


@pytest.fixture
def stopping() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def gated() -> GatedScorer:
    return GatedScorer()


@pytest.fixture
async def stub(gated: GatedScorer, stopping: asyncio.Event) -> AsyncIterator[Stub]:
    servicer = RewardServicer(gated, stopping=stopping)
    async with serve_reward(servicer) as target, grpc.aio.insecure_channel(target) as channel:
        yield Stub(channel)


@pytest.mark.stockfish
async def test_a_stream_says_what_a_batch_says(scorer: Scorer) -> None:
    async with serve_reward(RewardServicer(scorer)) as target, grpc.aio.insecure_channel(target) as channel:
        batch = await Stub(channel).ScoreBatch(reward_pb2.ScoreBatchRequest(items=request(0, *ANSWERS).items))
        call = Stub(channel).ScoreStream(iter([request(7, *ANSWERS), request(7), request(8, "?", fen="x")]))
        answers = {(answer.id, len(answer.items)): list(answer.items) async for answer in call}
    assert answers.keys() == {(7, 4), (7, 0), (8, 1)}
    assert answers[7, 4] == list(batch.items)
    assert answers[8, 1][0].problem.status == 422
    assert "'x'" in answers[8, 1][0].problem.detail


@pytest.mark.stockfish
async def test_a_bad_item_fills_its_own_slot(scorer: Scorer) -> None:
    mixed = request(1, ANSWERS[0], ANSWERS[0])
    mixed.items.insert(1, reward_pb2.ScoreRequest(fen="nonsense", response=ANSWERS[0]))
    async with serve_reward(RewardServicer(scorer)) as target, grpc.aio.insecure_channel(target) as channel:
        (answer,) = [answer async for answer in Stub(channel).ScoreStream(iter([mixed]))]
    assert [item.WhichOneof("result") for item in answer.items] == ["verdict", "problem", "verdict"]
    assert answer.items[0] == answer.items[2]
    assert verdict_from_proto(answer.items[0].verdict) == await scorer.score(Item(FEN, ANSWERS[0]))


async def test_every_field_of_an_item_arrives(stub: Stub, gated: GatedScorer) -> None:
    gated.all_open.set()
    item = reward_pb2.ScoreRequest(
        fen="f", response="r", task="A", scheme="graded", truncated=True, move="e2e4"
    )
    call = stub.ScoreStream(iter([reward_pb2.ScoreStreamRequest(id=1, items=[item])]))
    (answer,) = [answer async for answer in call]
    expected = verdict_of(Item("f", "r", "A", "graded", True, move="e2e4"))
    assert verdict_from_proto(answer.items[0].verdict) == expected


async def test_each_request_is_answered_as_soon_as_it_is_judged(stub: Stub, gated: GatedScorer) -> None:
    call = stub.ScoreStream()
    for number, gate in enumerate("abc"):
        await call.write(request(number, gate, gate))
    for number, gate in ((2, "c"), (0, "a"), (1, "b")):
        gated.open(gate)
        answer = await call.read()
        assert (answer.id, len(answer.items)) == (number, 2)
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


async def test_a_half_closed_stream_finishes_what_is_in_flight(stub: Stub, gated: GatedScorer) -> None:
    call = stub.ScoreStream(iter([request(number, "a") for number in range(10)]))
    await eventually(lambda: gated.judging == 10)
    gated.open("a")
    assert {answer.id async for answer in call} == set(range(10))
    assert await call.code() is grpc.StatusCode.OK


async def test_too_many_items_are_refused_slot_by_slot(stub: Stub, gated: GatedScorer) -> None:
    gated.all_open.set()
    too_many = request(1, *["a"] * (MAX_ITEMS + 1))
    answers = [answer async for answer in stub.ScoreStream(iter([too_many, request(2, "a")]))]
    refused, judged = sorted(answers, key=lambda answer: answer.id)
    assert len(refused.items) == MAX_ITEMS + 1
    assert {(item.problem.status, item.problem.detail) for item in refused.items} == {
        (422, "1025 items in one batch: at most 1024")
    }
    assert judged.items[0].WhichOneof("result") == "verdict"


async def test_no_more_than_a_window_is_in_judgement(stub: Stub, gated: GatedScorer) -> None:
    call = stub.ScoreStream(iter([request(number, str(number)) for number in range(5_000)]))
    await eventually(lambda: gated.judging == WINDOW)
    gated.all_open.set()
    assert sorted([answer.id async for answer in call]) == list(range(5_000))
    assert gated.most_judging == WINDOW


async def test_a_caller_that_leaves_ends_the_work(stub: Stub, gated: GatedScorer) -> None:
    call = stub.ScoreStream()
    for number in range(5):
        await call.write(request(number, str(number)))
    await eventually(lambda: gated.judging == 5)
    gated.open("3")
    assert (await call.read()).id == 3
    call.cancel()
    await eventually(lambda: gated.judging == 0)
    assert gated.cancelled == 4


async def test_a_stopping_service_answers_what_it_has_read_and_says_that_it_goes(
    stub: Stub, gated: GatedScorer, stopping: asyncio.Event
) -> None:
    call = stub.ScoreStream()
    await call.write(request(1, "a"))
    await eventually(lambda: gated.judging == 1)
    stopping.set()
    await asyncio.sleep(0.05)
    await call.write(request(2, "b"))
    gated.open("a")
    assert (await call.read()).id == 1
    with pytest.raises(grpc.aio.AioRpcError, match="the reward service is stopping") as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert gated.begun == ["a"]


async def test_a_stopping_service_does_not_wait_for_ever(
    stub: Stub, gated: GatedScorer, stopping: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "STREAM_DRAIN_S", 0.05)
    call = stub.ScoreStream()
    await call.write(request(1, "a"))
    await eventually(lambda: gated.judging == 1)
    stopping.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await eventually(lambda: gated.cancelled == 1)


@pytest.mark.stockfish
async def test_sigterm_drains_open_streams(start_service) -> None:
    service = start_service("--nodes", "400000")
    async with grpc.aio.insecure_channel(service.grpc_target) as channel, httpx.AsyncClient() as http:
        call = Stub(channel).ScoreStream()

        async def busy() -> bool:
            return "rookery_reward_engines_busy 1.0" in (await http.get(f"{service.url}/metrics")).text

        await call.write(request(1, r"\boxed{a3}"))
        await eventually(busy)
        service.process.send_signal(signal.SIGTERM)
        assert (await call.read()).items[0].verdict.move.san == "a3"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await asyncio.to_thread(service.process.wait, 30)  # a second signal, as it ends, would kill it
    status, log = service.stop()
    assert status == 0, log
    assert "Traceback" not in log


async def test_callers_that_leave_amid_answers_are_no_errors(
    gated: GatedScorer, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_reward(RewardServicer(gated)) as target:
        for _ in range(20):
            async with grpc.aio.insecure_channel(target) as channel:
                call = Stub(channel).ScoreStream()
                for number in range(20):
                    await call.write(request(number, "a"))
                gated.all_open.set()
        await eventually(lambda: gated.judging == 0)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
