"""How the policy record is followed: every change once, a refused one again later."""

from collections.abc import Callable

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

    def read(self) -> Adapter | None:
        if self.fault:
            raise self.fault
        return self.adapter


class Reloads:
    """Remembers the reloads asked for and what is served; `fault` answers, `meanwhile` happens first."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, bool]] = []
        self.served: Adapter | None = None
        self.fault: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    async def reload(self, adapter: Adapter, *, rollback: bool = False, wake: bool) -> None:
        assert not wake
        self.asked.append((adapter.version.number, rollback))
        self.meanwhile()
        if self.fault:
            raise self.fault
        if adapter == self.served:
            return
        if self.served and adapter.version.number <= self.served.version.number and not rollback:
            raise Conflict("older")
        self.served = adapter


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
        await follower.follow_once()

    assert reloads.asked == [(0, False), (1, False), (4, False)]


async def test_it_says_what_it_waits_for(follower: PolicyFollower, record: Record, reloads: Reloads) -> None:
    record.fault = Unavailable("redis does not answer")
    await follower.follow_once()
    assert follower.waiting_for == "redis does not answer"

    record.fault = None
    await follower.follow_once()
    assert follower.waiting_for == "no policy published yet"

    record.adapter = version(7)
    await follower.follow_once()
    assert follower.waiting_for == ""
    assert reloads.asked == [(7, False)]


async def test_a_record_that_conflicts_and_stands_is_followed_back(
    follower: PolicyFollower, record: Record, reloads: Reloads
) -> None:
    """Older versions, or other bytes under a number that is served."""
    for number in (7, 5):
        record.adapter = version(number)
        await follower.follow_once()
    record.adapter = Adapter(PolicyVersion(5, "f" * 64), "v5", "tiny")
    await follower.follow_once()
    await follower.follow_once()

    assert reloads.asked == [(7, False), (5, False), (5, True), (5, False), (5, True)]
    assert reloads.served == record.adapter


async def test_a_look_that_a_reload_outran_is_no_news(
    follower: PolicyFollower, record: Record, reloads: Reloads, caplog: pytest.LogCaptureFixture
) -> None:
    record.adapter = version(7)
    await follower.follow_once()
    record.adapter = version(8)

    def trainer() -> None:  # while the follower asks for version 8
        record.adapter = reloads.served = version(9)

    reloads.meanwhile = trainer
    await follower.follow_once()
    assert reloads.served == version(9)
    await follower.follow_once()
    await follower.follow_once()

    assert reloads.asked == [(7, False), (8, False), (9, False)]
    assert caplog.messages == []


async def test_a_refused_record_is_tried_again_later(
    follower: PolicyFollower, record: Record, reloads: Reloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.adapter, reloads.fault = version(7), InvalidInput("rank 99")
    await follower.follow_once()
    await follower.follow_once()
    assert reloads.asked == [(7, False)]
    assert follower.waiting_for == "policy-v000007 is refused: rank 99"

    monkeypatch.setattr(follower_module, "REFUSED_RETRY_S", 0.0)
    reloads.fault = None
    await follower.follow_once()

    assert reloads.served == version(7)


async def test_a_fault_of_the_engine_is_tried_again_at_once(
    follower: PolicyFollower, record: Record, reloads: Reloads
) -> None:
    record.adapter, reloads.fault = version(1), Unavailable("engine busy")
    await follower.follow_once()
    reloads.fault = None
    await follower.follow_once()
    await follower.follow_once()

    assert reloads.asked == [(1, False), (1, False)]
