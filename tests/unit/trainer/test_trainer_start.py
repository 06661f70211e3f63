"""What is wrong with a run's folder or settings is said at once, before Redis is asked for anything."""

import asyncio
import contextlib
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from rookery import devices
from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.errors import InvalidInput, PeerFault, RookeryError, SetupError
from services.trainer import process
from services.trainer.__main__ import prepare
from services.trainer.distributed.placement import computes_in_bf16, device_named, own_device
from services.trainer.distributed.process_group import World
from services.trainer.records.profile import FILE, Profile, saved_choice
from services.trainer.training import optimizer as adam
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.versions import commits
from tests import gpus
from tests.gpus import uuid


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"offload": True}, "offload moves Adam's moments off a GPU, and the trainer runs on the CPU"),
        ({"adam_bits": 8}, "adam_bits=8 needs bitsandbytes"),
        ({"device": "7"}, "--device 7: this machine has 0 GPUs"),
        ({}, r"metrics.jsonl:2: not a step: .*'\[1\]'"),
    ],
    ids=["offload", "8 bits", "GPU", "metrics"],
)
def test_nothing_is_begun_that_cannot_go_on(
    given: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object) -> None:
        raise AssertionError("the processes join")

    monkeypatch.setattr(process, "join_processes", begun)
    monkeypatch.setattr(adam.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 0}\n[1]\n')
    settings = TrainerSettings(model=Path("none"), run_dir=tmp_path, **{"device": "cpu", **given})
    with pytest.raises(RookeryError, match=said):
        asyncio.run(process.run(settings))


class Streams:
    """Those of a run that has published nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.policy = self

    def agree(self, settings: object) -> None: ...

    def read(self) -> None: ...


def _train(settings: TrainerSettings) -> None:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        process._train(settings, World(), {}, stop=threading.Event(), loop=loop)


def test_a_resume_that_is_refused_leaves_the_kept_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, fake in (
        ("RunStreams", Streams),
        ("build_policy", id),
        ("resolve_micro_batch_tokens", lambda s, _: s),
    ):
        monkeypatch.setattr(process, name, fake)
    then = TrainerSettings(model=Path("m"), run_dir=tmp_path, device="cpu")
    commits.write(
        then.adapters_dir,
        number=0,
        files={"adapter_model.safetensors": b"", commits.OPTIMIZER: b""},
        ledger=(),
        fingerprint=then.fingerprint(),
    )
    then.write_resolved(tmp_path)
    kept = (tmp_path / "trainer.toml").read_text()
    now = then.model_copy(update={"batch_groups": 9})
    with pytest.raises(SetupError, match="batch_groups was '32', is '9'"):
        _train(now)
    assert (tmp_path / "trainer.toml").read_text() == kept


def test_an_unknown_store_is_refused_at_once(tmp_path: Path) -> None:
    settings = TrainerSettings(model=Path("m"), run_dir=tmp_path, adapter_store="nosuch://bucket")
    with pytest.raises(SetupError, match="nosuch://bucket"):
        _train(settings)


def test_other_weights_under_the_name_of_its_model_are_no_model_to_resume_with(tmp_path: Path) -> None:
    known, first = [], None
    for value in (1.0, 1.0, 2.0):
        save_file({"w": torch.full((4,), value)}, tmp_path / "model.safetensors")
        settings = TrainerSettings(model=tmp_path, run_dir=tmp_path)
        first = first or settings
        known.append(settings.fingerprint()["model"])
    assert known[0] == known[1] != known[2]
    assert first is not None
    assert first.fingerprint()["model"] == known[0], "a trainer that runs has the weights it began with"
    assert first.model_dump() == settings.model_dump()
    assert all(name.startswith(f"{tmp_path}@sha256:") for name in known)


def test_the_gpu_of_auto_can_be_set_in_the_training_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch.cuda.set_device, which is torch's own here, refuses a device without an index."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch._C, "_cuda_setDevice", chosen.append, raising=False)
    settings = own_device(TrainerSettings(model=Path("m"), run_dir=tmp_path))
    policy: Any = SimpleNamespace(
        device=device_named(settings.device), parameters=[torch.nn.Parameter(torch.ones(2))]
    )
    PolicyTrainer(settings, policy, World())
    assert chosen == [0]


@pytest.mark.parametrize(("capability", "in_bf16"), [((7, 5), False), ((8, 0), True), ((12, 0), True)])
def test_a_gpu_without_bfloat16_trains_in_float32(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], in_bf16: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert computes_in_bf16("auto", torch.device("cuda:0")) is in_bf16


@pytest.mark.parametrize(
    ("visible", "device", "left", "place"),
    [("2,3", "1", "3", 0), ("2,3", "auto", "2,3", 0), (None, uuid(1), uuid(1), 0), ("3,1", "1,0", "1,3", 1)],
)
def test_a_process_of_the_trainer_takes_its_card_before_torch_counts_them(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    visible: str | None,
    device: str,
    left: str,
    place: int,
) -> None:
    gpus.install(monkeypatch, tmp_path / "driver", ["8.0"] * 4)
    monkeypatch.setenv(devices.ORDER, devices.PCI)
    monkeypatch.setenv(devices.VISIBLE, visible or "")
    if visible is None:
        monkeypatch.delenv(devices.VISIBLE)
    monkeypatch.setattr(devices, "_positions", {})
    monkeypatch.setenv("WORLD_SIZE", "2" if "," in device else "1")
    monkeypatch.setenv("LOCAL_RANK", "1" if "," in device else "0")
    settings = TrainerSettings(model=Path("m"), run_dir=tmp_path, device=device)
    prepare(settings)
    assert os.environ[devices.VISIBLE] == left
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(left.split(",")))
    assert device_named(own_device(settings).device) == torch.device("cuda", place)


def test_a_gpu_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_named("1") == torch.device("cuda:1")
    with pytest.raises(SetupError, match="--device 2: this machine has 2 GPUs"):
        device_named("2")
    with pytest.raises(SetupError, match="--device 0,1 names several devices"):
        device_named("0,1")


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValidationError, match="/file' is not a folder"):
        AutobatchSettings(model=Path("none"), run_dir=tmp_path / "file", device="cpu")
    with (
        pytest.raises(SetupError, match=r"--run-dir with .*/file/adapters: Not a directory"),
        commits.sole_writer(tmp_path / "file" / "adapters"),
    ):
        pass


def test_two_trainers_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with (
        commits.sole_writer(tmp_path),
        pytest.raises(SetupError, match=f"'{tmp_path}' is in use by another `trainer`"),
        commits.sole_writer(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{x", "is missing or damaged: .*line 1"),
        ("[]", "is not a JSON object"),
        ('{"asked": {}}', "lacks choice"),
        ('{"asked": {}, "choice": []}', "has no valid choice"),
        ('{"asked": {}, "choice": {"positions": 2}}', "has no valid choice"),
        (
            json.dumps(
                {"asked": {}, "choice": dict.fromkeys(Profile.__dataclass_fields__, 1) | {"positions": None}}
            ),
            "has no valid choice",
        ),
    ],
)
def test_damaged_profiles_are_named(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InvalidInput, match=f"{FILE} {said}"):
        saved_choice(tmp_path, conditions={})


@pytest.mark.parametrize("asked", [True, False])
def test_servers_sleep_for_a_step_and_are_woken_if_it_fails(asked: bool) -> None:
    from types import SimpleNamespace

    from services.trainer.loop import _servers_asleep

    did: list[str] = []
    publisher = SimpleNamespace(sleep=lambda: did.append("sleep"), wake_up=lambda: did.append("wake up"))
    phases: dict[str, float] = {}
    settings = SimpleNamespace(sleep_inference=asked)
    with pytest.raises(ArithmeticError), _servers_asleep(settings, publisher, phases):  # type: ignore[arg-type]
        did.append("step")
        raise ArithmeticError
    assert did == (["sleep", "step", "wake up"] if asked else ["step"])
    assert list(phases) == (["sleep"] if asked else [])


def test_a_server_that_does_not_sleep_means_no_step_and_the_others_wake() -> None:
    from types import SimpleNamespace

    from services.trainer.loop import _servers_asleep

    did: list[str] = []

    def sleep() -> None:
        raise PeerFault("requests in flight")

    publisher = SimpleNamespace(sleep=sleep, wake_up=lambda: did.append("wake up"))
    settings = SimpleNamespace(sleep_inference=True)
    with pytest.raises(PeerFault), _servers_asleep(settings, publisher, {}):  # type: ignore[arg-type]
        did.append("step")
    assert did == ["wake up"]
