"""How the policy record is followed: every change once, a refused one again later."""

import pytest

from rookery.errors import Conflict, InvalidInput, Unavailable
from rookery.trace import Adapter, PolicyVersion
from services.inference.server import follower as follower_module
from services.inference.server.follower import PolicyFollower


class Record:
    """A policy record in memory; `fault` is Redis being away."""

    def __init__(self) -> None:
        self.adapter: Adapter | None = None
        self.fault: Unavailable | None = None

    def ping(self, *, once: bool = False) -> None:
        if self.fault:
            raise self.fault

    def policy(self) -> Adapter | None:
        return self.adapter


class Reloads:
    """Remembers the reloads asked for; `fault` answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self.fault: Exception | None = None

    async def reload(self, adapter: Adapter, *, rollback: bool = False) -> None:
        self.asked.append((adapter.version.number, rollback))
        if self.fault:
            raise self.fault


def version(number: int) -> Adapter:
    return Adapter(PolicyVersion(number, f"{number:064x}"), f"v{number}", "tiny")


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def reloads() -> Reloads:
    return Reloads()


@pytest.fixture
def follower(record: Record, reloads: Reloads) -> PolicyFollower:
    return PolicyFollower(record, reloads)  # type: ignore[arg-type]


async def test_each_new_record_is_loaded_once(
    follower: PolicyFollower, record: Record, reloads: Reloads
) -> None:
    for number in (0, 0, 1, 1, 4):
        record.adapter = version(number)
        await follower.step()

    assert reloads.asked == [(0, False), (1, False), (4, False)]


async def test_it_says_what_it_waits_for(follower: PolicyFollower, record: Record, reloads: Reloads) -> None:
    record.fault = Unavailable("redis does not answer")
    await follower.step()
    assert follower.waiting_for == "redis does not answer"

    record.fault = None
    await follower.step()
    assert follower.waiting_for == "no policy published yet"

    record.adapter = version(7)
    await follower.step()
    assert follower.waiting_for == ""
    assert reloads.asked == [(7, False)]


async def test_a_record_that_goes_back_is_followed_back(
    follower: PolicyFollower, record: Record, reloads: Reloads
) -> None:
    for number in (7, 5):
        record.adapter = version(number)
        await follower.step()

    assert reloads.asked == [(7, False), (5, True)]


@pytest.mark.parametrize("refusal", [InvalidInput("rank 99"), Conflict("other bytes")])
async def test_a_refused_record_is_tried_again_later(
    follower: PolicyFollower,
    record: Record,
    reloads: Reloads,
    refusal: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record.adapter, reloads.fault = version(7), None
    await follower.step()
    record.adapter, reloads.fault = version(5), refusal
    await follower.step()
    await follower.step()
    assert reloads.asked == [(7, False), (5, True)]
    assert str(refusal) in follower.waiting_for

    monkeypatch.setattr(follower_module, "REFUSED_RETRY_S", 0.0)
    reloads.fault = None
    await follower.step()

    assert reloads.asked[-1] == (5, True)


async def test_a_fault_of_the_engine_is_tried_again_at_once(
    follower: PolicyFollower, record: Record, reloads: Reloads
) -> None:
    record.adapter, reloads.fault = version(1), Unavailable("engine busy")
    await follower.step()
    reloads.fault = None
    await follower.step()
    await follower.step()

    assert reloads.asked == [(1, False), (1, False)]
