"""Which GPUs each process gets, on machines of several layouts."""

import math
import os
from pathlib import Path

import pytest

from rookery import devices
from rookery.errors import SetupError
from tests import gpus
from tests.gpus import MIG, MIG_2, uuid

A100, T4 = "8.0", "7.5"


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four cards, of which the third is older."""
    gpus.install(monkeypatch, tmp_path, [A100, A100, T4, A100])


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two cards, of which the first is divided into two MIG devices."""
    gpus.install(monkeypatch, tmp_path, [A100, A100], parts=[MIG, MIG_2], gib=40)


def _places(*wanted: str) -> list[str]:
    return [devices.place(device, preferred=n, package="vllm") for n, device in enumerate(wanted)]


@pytest.mark.parametrize(
    ("visible", "inference", "trainer"),
    [
        (None, "0", "1"),
        ("2,3", "2", "3"),
        ("3,1", "3", "1"),
        ("3", "3", "3"),
        (f"{uuid(2)},{uuid(0)}", uuid(2), uuid(0)),
        (f"3,{uuid(0)[:12]}", "3", uuid(0)[:12]),
        ("2,3,-1,0", "2", "3"),
    ],
)
def test_services_take_what_the_user_made_visible_in_its_order(
    four: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, inference: str, trainer: str
) -> None:
    if visible is not None:
        monkeypatch.setenv(devices.VISIBLE, visible)
    for device, expected in zip(_places("auto", "auto"), (inference, trainer), strict=True):
        assert devices.environment(device) == {devices.ORDER: "PCI_BUS_ID", devices.VISIBLE: expected}


def test_parts_of_a_card_are_gpus_of_their_own(divided: None) -> None:
    assert _places("auto", "auto", "auto", "auto") == [MIG, MIG_2, "1", "1"]
    assert devices.environment(MIG_2)[devices.VISIBLE] == MIG_2
    assert (devices.capability(MIG_2), devices.memory_gib(MIG_2)) == ((8, 0), 20)
    assert (devices.capability("1"), devices.memory_gib("1")) == ((8, 0), 40)


def test_a_mig_device_may_be_the_one_that_is_visible(divided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VISIBLE, MIG_2)
    assert _places("auto", "auto") == ["0", "0"]
    assert devices.environment("0")[devices.VISIBLE] == MIG_2
    with pytest.raises(SetupError, match=f"0 GPUs are named {MIG}"):
        devices.entry(MIG)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("3", "3"),
        (uuid(1), uuid(1)),
        (uuid(1)[:12], uuid(1)),
        ("1,3", "1,3"),
        (f"{uuid(3)},0", f"{uuid(3)},0"),
    ],
)
def test_a_gpu_is_named_by_its_index_or_its_uuid(four: None, device: str, expected: str) -> None:
    assert devices.environment(device)[devices.VISIBLE] == expected


@pytest.mark.parametrize(
    ("visible", "device", "message"),
    [
        (None, "4", "no GPU 4: this machine has 4"),
        ("2,3", "2", "no GPU 2: CUDA_VISIBLE_DEVICES=2,3 has 2"),
        ("2,3", uuid(0), f"0 GPUs are named {uuid(0)}.*CUDA_VISIBLE_DEVICES selects"),
        (None, "GPU-ffff", "0 GPUs are named GPU-ffff"),
        ("2,9", "auto", "CUDA_VISIBLE_DEVICES=2,9: this machine has 4 GPUs"),
        ("", "0", "no GPU 0: CUDA_VISIBLE_DEVICES= has 0"),
    ],
)
def test_a_gpu_that_is_not_there_or_not_the_users_is_refused(
    four: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, device: str, message: str
) -> None:
    if visible is not None:
        monkeypatch.setenv(devices.VISIBLE, visible)
    with pytest.raises(SetupError, match=message):
        devices.place(device, preferred=0, package="vllm")


def test_the_order_is_that_of_nvidia_smi_or_refused(four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.ORDER, "FASTEST_FIRST")
    with pytest.raises(SetupError, match="CUDA_DEVICE_ORDER=FASTEST_FIRST"):
        devices.environment("0")
    assert devices.environment("cpu") == {devices.VISIBLE: ""}


def test_one_gpu_under_two_names_is_named_twice(four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VISIBLE, "2,2")
    with pytest.raises(SetupError, match="names a GPU twice"):
        devices.environment("0,1")


def test_without_nvidia_smi_cuda_judges_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.environment("1", {})[devices.VISIBLE] == "1"
    assert devices.environment("1", {devices.VISIBLE: "5,7"})[devices.VISIBLE] == "7"
    assert devices.environment("auto", {}) == {devices.ORDER: "PCI_BUS_ID"}
    assert devices.capability("0", {}) is devices.memory_gib("0", {}) is None
    assert devices.place("auto", preferred=0, package="vllm") == "auto"


def test_a_package_for_the_cpu_gets_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.install(monkeypatch, tmp_path, [A100], build="cpu")
    assert devices.place("auto", preferred=0, package="torch") == "auto"
    with pytest.raises(SetupError, match="GPU 0: the installed torch is a CPU build"):
        devices.place("0", preferred=0, package="torch")


def test_a_process_sees_its_gpus_alone_and_counts_them_from_0(
    four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(devices.VISIBLE, "1,2,3")
    monkeypatch.setenv(devices.ORDER, devices.PCI)
    monkeypatch.setattr(devices, "_positions", {})
    devices.restrict("2,1")
    assert os.environ[devices.VISIBLE] == "3,2"
    assert [devices.position(name) for name in ("2", "1")] == [0, 1]
    devices.restrict("cpu")
    assert os.environ[devices.VISIBLE] == ""


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_container_may_have_fewer_cores_than_its_machine(
    files: dict[str, str], cores: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert devices.container_quota(tmp_path) == cores
    monkeypatch.setattr(devices, "container_quota", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    assert devices.usable_cores() == math.ceil(min(64, cores))
