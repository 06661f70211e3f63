"""Versions that replace each other, on an engine that only remembers what it was told."""

import asyncio
from pathlib import Path

import pytest

from rookery.errors import Conflict, EngineFault, InvalidInput, Unavailable
from rookery.trace import Adapter
from services.inference.server.drain import RequestDrainer
from services.inference.server.full_weights import FullWeightsRules
from services.inference.server.full_weights_policies import FullWeightsPolicies
from services.inference.server.policies import ALIAS
from tests.unit.inference.server.full_weight_models import write_model

BASE = "base"


class OneModelEngine:
    """What weights it holds, and the names they go by; asserts that nobody is being answered meanwhile."""

    def __init__(self, drainer: RequestDrainer) -> None:
        self.drainer, self.weights, self.swaps = drainer, BASE, list[str]()
        self.names: dict[str, str] = {}
        self.refuses: set[str] = set()
        self.answers: dict[str, tuple[float, ...]] = {}
        self.generating = 0

    async def load(self, adapter: Adapter) -> None:
        await self._swap(adapter.version.name)

    async def wait_until_idle(self) -> None:
        if self.generating:
            raise Unavailable("still generating")

    async def restore(self) -> None:
        await self._swap(BASE)

    async def _swap(self, weights: str) -> None:
        assert not self.generating
        await asyncio.sleep(0)
        self.swaps.append(weights)
        if weights in self.refuses:
            raise InvalidInput(f"refuses {weights}")
        self.weights = weights

    async def canary(self, adapter: Adapter | None) -> tuple[float, ...]:
        return self.answers.get(self.weights, (-1.0, -2.0))

    async def warm_up(self, adapter: Adapter) -> None:
        assert ALIAS not in self.names

    def route(self, model: str, adapter: Adapter) -> None:
        assert adapter.version.name == self.weights
        self.names = {n: w for n, w in self.names.items() if w == self.weights} | {model: self.weights}

    def unroute(self, model: str) -> None:
        self.names.pop(model, None)

    def in_use(self, adapter: Adapter) -> bool:
        raise AssertionError("nothing ever retires")

    async def unload(self, adapter: Adapter) -> None:
        raise AssertionError("nothing is ever unloaded")


@pytest.fixture
def drainer() -> RequestDrainer:
    return RequestDrainer()


@pytest.fixture
def engine(drainer: RequestDrainer) -> OneModelEngine:
    return OneModelEngine(drainer)


@pytest.fixture
def policies(engine: OneModelEngine, drainer: RequestDrainer, tmp_path: Path) -> FullWeightsPolicies:
    write_model(tmp_path / "tiny")
    return FullWeightsPolicies(
        engine, FullWeightsRules(tmp_path, frozenset({"tiny"}), tmp_path / "tiny"), drainer
    )


def version(folder: Path, number: int) -> Adapter:
    return write_model(folder / f"v{number}", version=number)


async def test_a_version_takes_the_place_of_the_one_before(
    policies: FullWeightsPolicies, engine: OneModelEngine, tmp_path: Path
) -> None:
    await policies.prepare()
    assert policies.prepared
    engine.answers["policy-v000001"] = (-1.5, -2.0)
    for number in (0, 1):
        done = await policies.reload(version(tmp_path, number))
    assert done.canary_max_difference == 0.5
    assert {"verify", "drain", "load", "canary", "flip", "total"} == set(done.seconds)
    assert engine.names == {"policy-v000001": "policy-v000001", ALIAS: "policy-v000001"}
    assert (await policies.reload(version(tmp_path, 1))).changed is False
    await policies.unload_retired()
    assert engine.swaps == ["policy-v000000", "policy-v000001"]


async def test_the_past_is_a_conflict_unless_it_is_wanted(
    policies: FullWeightsPolicies, engine: OneModelEngine, tmp_path: Path
) -> None:
    for number in (0, 1):
        await policies.reload(version(tmp_path, number))
    with pytest.raises(Conflict):
        await policies.reload(version(tmp_path, 0))
    await policies.reload(version(tmp_path, 0), rollback=True)
    assert engine.names[ALIAS] == engine.weights == "policy-v000000"


async def test_every_answer_is_of_one_version(
    policies: FullWeightsPolicies, engine: OneModelEngine, drainer: RequestDrainer, tmp_path: Path
) -> None:
    await policies.reload(version(tmp_path, 0))
    seen: list[tuple[str, str]] = []
    stop = False

    async def ask() -> None:
        while not stop:
            async with drainer.admitted():
                engine.generating += 1
                before = engine.weights
                for _ in range(3):
                    await asyncio.sleep(0)
                seen.append((before, engine.weights))
                engine.generating -= 1
            await asyncio.sleep(0)

    callers = [asyncio.create_task(ask()) for _ in range(5)]
    for number in range(1, 6):
        await policies.reload(version(tmp_path, number))
    stop = True
    await asyncio.gather(*callers)
    assert all(before == after for before, after in seen)
    assert len({before for before, _ in seen}) > 2


@pytest.mark.parametrize("number", [0, 1])
async def test_a_version_that_fails_leaves_the_one_before(
    policies: FullWeightsPolicies, engine: OneModelEngine, tmp_path: Path, number: int
) -> None:
    if number:
        await policies.reload(version(tmp_path, 0))
    names, before = dict(engine.names), engine.weights
    engine.refuses = {f"policy-v00000{number}"}
    with pytest.raises(InvalidInput, match="refuses"):
        await policies.reload(version(tmp_path, number))
    engine.refuses = set()
    engine.answers[f"policy-v00000{number}"] = (float("nan"), 0.0)
    with pytest.raises(InvalidInput, match="canary"):
        await policies.reload(version(tmp_path, number))
    assert (engine.weights, engine.names) == (before, names)
    assert (policies.served.version.number if policies.served else None) == (0 if number else None)


async def test_weights_are_never_overwritten_while_the_engine_generates(
    policies: FullWeightsPolicies, engine: OneModelEngine, tmp_path: Path
) -> None:
    await policies.reload(version(tmp_path, 0))
    engine.generating = 1
    with pytest.raises(Unavailable, match="still generating"):
        await policies.reload(version(tmp_path, 1))
    assert (engine.swaps, engine.names[ALIAS]) == (["policy-v000000"], "policy-v000000")
    engine.generating = 0
    await policies.reload(version(tmp_path, 1))
    assert engine.names[ALIAS] == "policy-v000001"


async def test_when_nothing_can_be_restored_nothing_is_served(
    policies: FullWeightsPolicies, engine: OneModelEngine, tmp_path: Path
) -> None:
    await policies.reload(version(tmp_path, 0))
    engine.refuses = {"policy-v000000", "policy-v000001"}
    with pytest.raises(
        EngineFault, match=r"refuses policy-v000001.*could not be restored: refuses policy-v000000"
    ):
        await policies.reload(version(tmp_path, 1))
    assert policies.served is None
    assert engine.names == {}
    engine.refuses = set()
    await policies.reload(version(tmp_path, 1))
    assert policies.served
