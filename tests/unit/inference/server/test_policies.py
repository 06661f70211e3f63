"""The version rules, on an engine that only remembers what it was told."""

import asyncio
import dataclasses
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench.noise_adapter import write_adapter
from rookery.canary import CANARY_FILE, Canary, Rows
from rookery.errors import Conflict, EngineFault, InvalidInput, NotFound, RookeryError
from rookery.trace import Adapter, PolicyVersion
from services.inference.server import policies as policies_module
from services.inference.server.adapter import AdapterRules
from services.inference.server.policies import ALIAS, Policies


class MemoryEngine:
    """An engine of names: adapters in memory, routes to them, and requests in flight.

    Other bytes under a name that was borne before get a label with a star.
    """

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.routes: dict[str, str] = {}
        self.in_flight: set[str] = set()
        self.warm_ups = 0
        self.fault: RookeryError | None = None
        self.answers: dict[str | None, tuple[float, ...]] = {None: (-1.0, -2.0)}
        self.rows: dict[str | None, Rows] = {}
        self.precision = 1e-7
        self._first: dict[str, str] = {}

    def label(self, adapter: Adapter) -> str:
        name, sha256 = adapter.version.name, adapter.version.sha256
        return name if self._first.setdefault(name, sha256) == sha256 else f"{name}*{sha256[:4]}"

    async def load(self, adapter: Adapter) -> None:
        await asyncio.sleep(0)
        if self.fault:
            raise self.fault
        assert self.label(adapter) not in self.loaded
        self.loaded.append(self.label(adapter))

    async def canary(self, adapter: Adapter | None) -> tuple[float, ...]:
        return self.answers.get(adapter and self.label(adapter), (-1.5, -2.0))

    async def answers_to(self, canary: Canary, adapter: Adapter | None, *, together: bool = True) -> Rows:
        return self.rows[adapter and self.label(adapter)]

    async def warm_up(self, adapter: Adapter) -> None:
        assert ALIAS not in self.routes
        self.warm_ups += 1

    def route(self, model: str, adapter: Adapter) -> None:
        assert self.label(adapter) in self.loaded
        self.routes[model] = self.label(adapter)

    def unroute(self, model: str) -> None:
        del self.routes[model]

    def in_use(self, adapter: Adapter) -> bool:
        return self.label(adapter) in self.in_flight

    async def unload(self, adapter: Adapter) -> None:
        assert self.label(adapter) not in self.routes.values()
        if self.label(adapter) in self.loaded:
            self.loaded.remove(self.label(adapter))


def write_canary(adapter: Adapter, text: str) -> None:
    Path(adapter.path, CANARY_FILE).write_text(text)


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine()


@pytest.fixture
def policies(engine: MemoryEngine, tmp_path: Path) -> Policies:
    return Policies(engine, AdapterRules(tmp_path, frozenset({"tiny"}), max_rank=8), keep=3, leases=1)


@pytest.fixture
def make(tmp_path: Path, model: Path) -> Callable[..., Adapter]:
    def write(version: int, *, seed: int | None = None, scale: float = 0.02) -> Adapter:
        seed = version if seed is None else seed
        made = write_adapter(
            tmp_path / f"v{version}-{seed}-{scale}", model, version=seed, rank=4, scale=scale
        )
        return dataclasses.replace(made, version=PolicyVersion(version, made.version.sha256))

    return write


@pytest.fixture
def serve(policies: Policies, make: Callable[..., Adapter]) -> Callable[..., Awaitable[list[Adapter]]]:
    async def reload_all(*versions: int) -> list[Adapter]:
        adapters = [make(version) for version in versions]
        for adapter in adapters:
            await policies.reload(adapter)
        return adapters

    return reload_all


async def test_the_alias_moves_and_earlier_versions_keep_their_names(
    policies: Policies, engine: MemoryEngine, make: Callable[..., Adapter]
) -> None:
    first, second = make(0), make(1)

    done = await policies.reload(first)
    await policies.reload(second)

    assert done.changed
    assert done.canary_max_difference == 0.5
    assert {"verify", "load", "canary", "warm_up", "flip", "total"} == set(done.seconds)
    assert policies.served == second
    assert engine.routes == {
        "policy-v000000": "policy-v000000",
        "policy-v000001": "policy-v000001",
        ALIAS: "policy-v000001",
    }


async def test_the_first_load_warms_up_before_anything_is_routed(engine: MemoryEngine, serve) -> None:
    await serve(0, 1, 2)

    assert engine.warm_ups == 1


async def test_the_same_version_and_bytes_again_change_nothing(
    policies: Policies, engine: MemoryEngine, serve
) -> None:
    (adapter,) = await serve(3)

    done = await policies.reload(dataclasses.replace(adapter, path="anywhere"))

    assert (done.changed, done.adapter, engine.loaded) == (False, adapter, ["policy-v000003"])


async def test_the_same_version_with_other_bytes_conflicts(policies: Policies, serve) -> None:
    (adapter,) = await serve(3)
    other = dataclasses.replace(adapter, version=PolicyVersion(3, "0" * 64))

    with pytest.raises(Conflict, match="version 3 is served with sha256"):
        await policies.reload(other)
    assert policies.served == adapter


async def test_an_older_version_needs_rollback(policies: Policies, engine: MemoryEngine, serve) -> None:
    first, second = await serve(1, 2)

    with pytest.raises(Conflict, match="version 1 is older than 2"):
        await policies.reload(first)
    done = await policies.reload(first, rollback=True)

    assert policies.served == first
    assert "load" not in done.seconds, "it was still held"
    assert engine.routes[ALIAS] == "policy-v000001"
    assert (await policies.reload(second)).changed


async def test_a_run_that_went_back_is_followed_whatever_was_served_before(
    policies: Policies, engine: MemoryEngine, serve, make: Callable[..., Adapter]
) -> None:
    first, *_ = await serve(1, 2, 3)
    await policies.reload(first, rollback=True)
    assert set(engine.routes) == {"policy-v000001", ALIAS}, "what came after is history"

    again = [make(2, seed=12), make(3, seed=13)]
    for adapter in again:
        await policies.reload(adapter)
    assert policies.served == again[-1]
    newest = make(3, seed=23)
    await policies.reload(newest, rollback=True)

    assert policies.served == newest
    assert engine.routes == {
        "policy-v000001": "policy-v000001",
        "policy-v000002": engine.label(again[0]),
        "policy-v000003": engine.label(newest),
        ALIAS: engine.label(newest),
    }


async def test_a_rollback_that_fails_leaves_the_old_policy(
    policies: Policies, engine: MemoryEngine, serve
) -> None:
    *_, last = await serve(1, 2)
    with pytest.raises(InvalidInput):
        await policies.reload(Adapter(PolicyVersion(1, "0" * 64), last.path, "tiny"), rollback=True)

    assert policies.served == last
    assert engine.routes[ALIAS] == "policy-v000002"


async def test_an_adapter_that_changes_weights_but_no_answer_is_refused(
    policies: Policies, engine: MemoryEngine, serve, make: Callable[..., Adapter]
) -> None:
    (adapter,) = await serve(1)
    for number in (2, 3, 4):
        engine.answers[f"policy-v00000{number}"] = engine.answers[None]

    with pytest.raises(
        InvalidInput, match="policy-v000002 answers the canary exactly as the base model does"
    ):
        await policies.reload(make(2))
    assert (policies.served, engine.loaded) == (adapter, ["policy-v000001"])

    for number, scale in ((3, 0.0), (4, 1e-9)):  # none, and a step that rounding may hide
        still = make(number, scale=scale)
        await policies.reload(still)
        assert policies.served == still


async def test_a_version_that_answers_unlike_its_own_canary_is_refused(
    policies: Policies, engine: MemoryEngine, make: Callable[..., Adapter]
) -> None:
    canary = {"token_ids": [1, 2], "lengths": [2], "tokens": [[5, 6]]}
    canary |= {"base": [[-1.0, -2.0]], "logprobs": [[-1.5, -1.2]]}
    engine.rows = {None: [{5: -1.0, 6: -2.0}]}
    engine.rows |= {"policy-v000001": [{5: -1.5, 6: -1.2}], "policy-v000002": [{5: -1.0, 6: -2.0}]}
    first, unapplied, damaged = made = [make(number) for number in (1, 2, 3)]
    for adapter in made:
        write_canary(adapter, json.dumps(canary)[: -1 if adapter == damaged else None])

    done = await policies.reload(first)

    assert done.agreement is not None
    assert (done.agreement.distance, done.agreement.applied) == pytest.approx((0.0, 1.0))
    with pytest.raises(InvalidInput, match="policy-v000002 answers the canary more like the base model"):
        await policies.reload(unapplied)
    with pytest.raises(InvalidInput, match=r"canary\.json: .*JSON"):
        await policies.reload(damaged)
    assert policies.served == done.adapter
    assert engine.loaded == ["policy-v000001"]


async def test_a_bad_adapter_leaves_the_old_policy(policies: Policies, engine: MemoryEngine, serve) -> None:
    (adapter,) = await serve(1)
    bad = Adapter(PolicyVersion(2, "0" * 64), "nowhere", "tiny")

    with pytest.raises(InvalidInput, match="nowhere"):
        await policies.reload(bad)

    assert policies.served == adapter
    assert engine.routes[ALIAS] == "policy-v000001"


@pytest.mark.parametrize("answer", [(), (math.nan, -1.0), (-math.inf, -1.0)])
async def test_a_canary_that_dies_leaves_the_old_policy(
    policies: Policies, engine: MemoryEngine, serve, make: Callable[..., Adapter], answer: tuple[float, ...]
) -> None:
    (adapter,) = await serve(1)
    engine.answers["policy-v000002"] = answer

    with pytest.raises(InvalidInput, match="policy-v000002 answers the canary with"):
        await policies.reload(make(2))

    assert (policies.served, engine.loaded) == (adapter, ["policy-v000001"])


async def test_a_fault_of_the_engine_can_be_tried_again(
    policies: Policies, engine: MemoryEngine, make: Callable[..., Adapter]
) -> None:
    adapter = make(1)
    engine.fault = EngineFault("no answer")

    with pytest.raises(EngineFault):
        await policies.reload(adapter)
    engine.fault = None

    assert (await policies.reload(adapter)).changed


async def test_retired_versions_lose_their_name_then_their_memory_once_unused(
    policies: Policies, engine: MemoryEngine, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.in_flight = {"policy-v000000"}
    await serve(0, 1, 2, 3)
    assert "policy-v000000" not in engine.routes

    await policies.unload_retired()
    assert "policy-v000000" in engine.loaded, "a request may have looked the name up just before"
    monkeypatch.setattr(policies_module, "RETIRE_AFTER_S", 0.0)
    await policies.unload_retired()
    assert "policy-v000000" in engine.loaded, "a request still uses it"
    engine.in_flight.clear()
    await policies.unload_retired()

    assert engine.loaded == ["policy-v000001", "policy-v000002", "policy-v000003"]


async def test_a_retired_version_still_held_comes_back_without_loading(
    policies: Policies, engine: MemoryEngine, serve
) -> None:
    first, *_ = await serve(0, 1, 2, 3)

    await policies.reload(first, rollback=True)
    await policies.unload_retired()

    assert engine.routes[ALIAS] == "policy-v000000"
    assert engine.loaded.count("policy-v000000") == 1


async def test_reloads_at_the_same_time_queue_up(
    policies: Policies, engine: MemoryEngine, make: Callable[..., Adapter]
) -> None:
    adapter = make(5)

    done = await asyncio.gather(*(policies.reload(adapter) for _ in range(8)))

    assert sorted(d.changed for d in done) == [False] * 7 + [True]
    assert engine.loaded == ["policy-v000005"]


async def test_a_leased_version_stays_served_though_newer_ones_come(
    policies: Policies, engine: MemoryEngine, serve
) -> None:
    first, *_ = await serve(0, 1)
    assert policies.lease(0, seconds=60) == first
    await serve(2, 3, 4, 5)
    assert policies.lease(0, seconds=60) == first, "renewed"
    assert set(engine.routes) == {ALIAS, *(f"policy-v00000{n}" for n in (0, 3, 4, 5))}

    policies.end_lease(0)

    assert "policy-v000000" not in engine.routes
    assert policies.served and policies.served.version.number == 5
    with pytest.raises(NotFound, match="version 0 is not served and cannot be leased; served: 3, 4, 5"):
        policies.lease(0, seconds=60)


async def test_a_version_that_is_new_anyway_keeps_its_name_after_its_lease(
    policies: Policies, engine: MemoryEngine, serve
) -> None:
    await serve(0, 1)
    policies.lease(1, seconds=60)
    policies.end_lease(1)
    policies.end_lease(7)
    assert {"policy-v000000", "policy-v000001"} < set(engine.routes)


async def test_a_lease_that_nobody_renews_expires(policies: Policies, engine: MemoryEngine, serve) -> None:
    await serve(0)
    policies.lease(0, seconds=1e-9)
    await serve(1, 2, 3)
    await policies.unload_retired()
    assert "policy-v000000" not in engine.routes


async def test_there_are_only_so_many_leases(policies: Policies, serve) -> None:
    await serve(0, 1)
    policies.lease(0, seconds=60)
    with pytest.raises(Conflict, match=r"\(leases=1\) are taken by: policy-v000000"):
        policies.lease(1, seconds=60)
    policies.end_lease(0)
    assert policies.lease(1, seconds=60).version.number == 1


async def test_a_run_that_goes_back_ends_the_leases_of_removed_versions(
    policies: Policies, engine: MemoryEngine, serve, make: Callable[..., Adapter]
) -> None:
    await serve(0, 1, 2)
    policies.lease(2, seconds=60)
    await policies.reload(make(1, seed=9), rollback=True)
    assert "policy-v000002" not in engine.routes
    with pytest.raises(NotFound):
        policies.lease(2, seconds=60)
    assert policies.lease(1, seconds=60).version.number == 1, "the slot is free"
