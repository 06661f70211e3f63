"""Partition, commands and heartbeats of several processes; what they compute is in tests/integration."""

import json
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rookery.codec import encode_group
from rookery.config.finetune import SftSettings
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError, Unavailable
from rookery.trace import TraceGroup
from services.trainer.batches.advantages import updated_averages
from services.trainer.batches.micro_batches import partition, split_rows
from services.trainer.batches.rows import Row, ScoredCompletion
from services.trainer.distributed import process_group
from services.trainer.distributed.placement import device_named, own_device
from services.trainer.distributed.process_group import Follower, RankZero, World, join_processes
from services.trainer.training.canary import CanaryScorer
from services.trainer.training.policy_trainer import agreed, decode, encode, follow
from services.trainer.training.statistics import MicroBatchStats, PendingStats
from services.trainer.training.step import RunningState
from tests.conftest import ROOT
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.groups import make_group


def _row(length: int) -> Row:
    return Row((1,) * (length - 3), (ScoredCompletion((1,) * 4, (-1.0,) * 4, 1.0, 0),), 1.0)


lengths = st.lists(st.integers(5, 200), max_size=20)


@given(lengths, st.integers(1, 5))
def test_every_row_is_one_process_and_loads_are_even(rows: list[int], size: int) -> None:
    given = [_row(length) for length in rows]
    parts = split_rows(given, size)
    assert len(parts) == size
    assert sorted(id(row) for part in parts for row in part) == sorted(map(id, given))
    loads = [sum(row.length for row in part) for part in parts]
    assert max(loads) - min(loads) <= max(rows, default=0)


@given(lengths, st.integers(1, 5), st.booleans())
def test_all_processes_agree_on_the_partition(rows: list[int], size: int, same_number: bool) -> None:
    given = [_row(length) for length in rows]
    parts = [
        partition(given, tokens=150, rank=rank, processes=size, same_number=same_number)
        for rank in range(size)
    ]
    every = parts[0].micro_batches
    assert all(part.micro_batches == every for part in parts)
    assert [one.rows for part in parts for one in part.passes if one.weight] == every
    if same_number:
        assert len({len(part.passes) for part in parts}) == 1


def test_one_process_alone_keeps_the_rows_in_order() -> None:
    rows = [_row(length) for length in (9, 30, 12)]
    assert split_rows(rows, 1) == [rows]


@pytest.mark.parametrize(
    ("call", "arguments", "groups"),
    [
        ("load", {"folder": "/adapters/policy-v000001", "settings": {"lr": 0.1}}, []),
        ("files", {}, []),
        ("train_step", {"step": 3, "state": {"now": 0.1 + 0.2}}, [make_group(0), make_group(1)]),
    ],
)
def test_commands_survive_the_wire(call: str, arguments: dict[str, Any], groups: list[TraceGroup]) -> None:
    there = decode(encode(call, groups, **arguments))
    assert there[:2] == (call, arguments)
    assert [encode_group(group) for group in there[2]] == [encode_group(group) for group in groups]


def test_measures_survive_the_wire() -> None:
    values = torch.tensor([0.1 + 0.2, 1.5, 3.1, 2.0, 0.0, 1.0, 0.25, 0.0, 1e-9], dtype=torch.float64)
    there = json.loads(json.dumps(PendingStats(3, ("ratio",), values, torch.zeros(3), torch.zeros(3)).read()))
    part = MicroBatchStats(3, 0.1 + 0.2, 1.5, {"ratio": 3.1}, {0: (2, 0.25), 2: (1, 1e-9)})
    assert MicroBatchStats.of(*there) == part


def _process(kind: Any, store: Any) -> Any:
    return kind(store, rank=0 if kind is RankZero else 1, size=2, sharded=False)


def test_a_follower_ends_when_rank_0_does() -> None:
    store = torch.distributed.HashStore()
    with _process(RankZero, store).leading(threading.Event()):
        pass
    assert list(_process(Follower, store).commands(threading.Event())) == []


def test_a_follower_ends_when_rank_0_fails() -> None:
    store = torch.distributed.HashStore()
    with pytest.raises(ArithmeticError), _process(RankZero, store).leading(threading.Event()):
        raise ArithmeticError
    assert list(_process(Follower, store).commands(threading.Event())) == []


def test_a_follower_told_to_stop_stops_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "HEARTBEAT_S", 0.01)
    store, stopping, told = torch.distributed.HashStore(), threading.Event(), threading.Event()
    told.set()
    ended: list[bytes] = []
    follower = threading.Thread(target=lambda: ended.extend(_process(Follower, store).commands(told)))
    with _process(RankZero, store).leading(stopping):
        follower.start()
        assert stopping.wait(120.0)
    follower.join(120.0)
    assert not follower.is_alive()


def test_a_follower_does_not_outlive_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "HEARTBEAT_TIMEOUT_S", 0.05)
    with pytest.raises(Unavailable, match="no heartbeat of rank 0"):
        list(_process(Follower, torch.distributed.HashStore()).commands(threading.Event()))


def _settings(**changed: Any) -> TrainerSettings:
    return TrainerSettings(model=Path("m"), run_dir=Path("r"), **changed)


def test_processes_of_other_settings_are_refused() -> None:
    leaders = _settings(lr=0.1, device="0").model_dump(mode="json")
    assert agreed(_settings(lr=0.1, device="1"), leaders).lr == 0.1
    with pytest.raises(SetupError, match=r"lr is 0.2, rank 0 has 0.1"):
        agreed(_settings(lr=0.2), leaders)


def test_what_rank_0_has_measured_counts() -> None:
    leaders = _settings(micro_batch_tokens=1234).model_dump(mode="json")
    assert agreed(_settings(micro_batch_tokens="auto"), leaders).micro_batch_tokens == 1234


class Told(World):
    """A process that gets these commands of rank 0, and then the end."""

    def __init__(self, *said: bytes) -> None:
        self._said = said

    def commands(self, _: threading.Event) -> Iterator[bytes]:
        return iter(self._said)


def _step(number: int, state: RunningState) -> bytes:
    groups = [make_group(number, vocabulary=12)]
    return encode("train_step", groups, step=number, state=state.as_json(), dry_run=False)


def test_a_process_that_has_learned_otherwise_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CanaryScorer, "of_base", lambda policy, model: None)  # no model folder here
    settings = _settings(baseline="ema", device="cpu")
    first = _step(0, RunningState())
    averages = updated_averages(None, [make_group(0, vocabulary=12).rewards], decay=settings.baseline_decay)
    successor = RunningState(averages, collapsed_steps=3)  # which only rank 0 counts
    told: Any = Told(first, _step(1, successor))
    policy: Any = Bigram(12)
    policy.model = SimpleNamespace(config=SimpleNamespace())
    follow(settings, policy, told, stop_requested=threading.Event())
    other = replace(successor, averages=replace(averages, mean=0.5))
    told = Told(first, _step(1, other))
    with pytest.raises(ArithmeticError, match=r"step 1: rank 0 is in state .*, rank 0 .*mean=0.5"):
        follow(settings, policy, told, stop_requested=threading.Event())


@pytest.mark.parametrize(
    ("device", "place", "own"),
    [("cpu", 1, "cpu"), ("0,3", 0, "0"), ("0,3", 1, "3"), ("2", 0, "2"), ("cuda:0,cuda:1", 1, "1")],
)
def test_a_process_takes_its_place_among_the_devices(
    device: str, place: int, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(place))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert own_device(_settings(device=device)).device == own


def test_more_processes_than_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(SetupError, match=r"process 2 .* --device 0,3 has 2"):
        own_device(_settings(device="0,3"))


def test_a_command_of_one_process_takes_no_two_devices() -> None:
    with pytest.raises(SetupError, match="--device 0,3 names several devices"):
        device_named("0,3")


@pytest.mark.parametrize("size", [None, "1"])
def test_one_process_takes_no_two_devices(size: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size:
        monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(SetupError, match="--device 0,3 is for 2 processes"):
        own_device(_settings(device="0,3"))


@pytest.mark.parametrize("device", ["1", "cuda:1"])
def test_each_process_of_a_launcher_sets_its_gpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = (torch.distributed.HashStore(), 1, 2)
    monkeypatch.setattr(torch.distributed, "rendezvous", lambda *_, **__: iter([found]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    with join_processes(_settings(device=device)):
        assert chosen == [torch.device("cuda:1")]


@pytest.mark.parametrize("device", ["gpu", "cuda", "0,cpu", "auto,0", "0,", "0,cuda:0", "-1"])
def test_what_is_no_device_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="device"):
        _settings(device=device)


def test_one_process_shards_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_processes(_settings()) as alone:
        assert type(alone) is World
    with (
        pytest.raises(SetupError, match="sharding=fsdp2 needs several processes"),
        join_processes(_settings(sharding="fsdp2")),
    ):
        pass


@pytest.mark.parametrize(
    "changed",
    [
        {"micro_batch_tokens": "auto"},
        {"base_bits": 4},
        {"lora_rank": 0, "objective": "ppo"},
        {"lora_rank": 0, "adam_bits": 8},
    ],
    ids=str,
)
def test_what_cannot_be_sharded_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="sharding"):
        _settings(sharding="fsdp2", **changed)


def test_the_page_shows_commands_that_parse() -> None:
    page = (ROOT / "services/trainer/README.md").read_text().replace("\\\n", " ")
    launches = re.findall(r"^\$ accelerate launch .+ -m services.trainer (--.+)", page, re.MULTILINE)
    [sft] = re.findall(r"-m services.trainer sft (.+)", page)
    assert SftSettings.parse(shlex.split(sft), prog="sft").out == Path("runs/sft")
    parsed = [TrainerSettings.parse(shlex.split(flags), prog="trainer") for flags in launches]
    assert [settings.sharding for settings in parsed] == ["none", "fsdp2"]
