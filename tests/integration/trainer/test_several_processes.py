"""Two processes on gloo learn what one learns; whichever ends takes the others with it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file

from rookery.streams import RunStreams
from services.trainer.tiny import build_tiny
from tests.integration.trainer.runs import BATCH, Run, events
from tests.integration.trainer.several import CASES
from tests.processes import ACCELERATE_LAUNCH
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(sys.executable).parent
NOT_LEARNING = {"forward_backward_s", "optimizer_s", "rescore_s", "micro_batches"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases in one start: most of it goes by importing torch."""
    folder = tmp_path_factory.mktemp("several")
    build_tiny(folder / "tiny", seed=3, layers=2)
    write_gpt2(folder / "gpt2", seed=1)
    script = Path(__file__).with_name("several.py")
    command = [SCRIPTS / "torchrun", "--standalone", "--nproc-per-node", "2", script, folder]
    subprocess.run(command, check=True, timeout=240, cwd=ROOT)
    return folder / "out"


@pytest.mark.parametrize("case", CASES)
def test_two_processes_measure_what_one_measures(case: str, results: Path) -> None:
    alone, both = (json.loads((results / case / by / "rows.json").read_text()) for by in ("alone", "all"))
    assert [row["grad_norm"] > 0 for row in alone] == [True] * len(alone)
    for one, two in zip(alone, both, strict=True):
        assert one.keys() == two.keys()
        for name in one.keys() - NOT_LEARNING:
            # Adam's first steps are as long as the rate, so rounding moves ratios: by 1.02e-4 on one CPU.
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize("case", CASES)
def test_two_processes_come_to_the_same_weights_and_moments(case: str, results: Path) -> None:
    names = {path.name for path in (results / case / "alone").glob("*.safetensors")}
    assert "optimizer.safetensors" in names
    assert len(names) > 1
    for name in names:
        one, two = (load_file(results / case / by / name) for by in ("alone", "all"))
        assert one.keys() == two.keys()
        if name == "optimizer.safetensors":
            for key, moment in one.items():
                torch.testing.assert_close(two[key], moment, rtol=1e-3, atol=1e-6, msg=key)
        else:
            # Where the true gradient is 0, as of a key's bias, Adam makes steps of what rounding leaves.
            moved = sum((two[key] - one[key]).double().square().sum() for key in one).sqrt()
            assert moved < 1e-3 * sum(tensor.double().square().sum() for tensor in one.values()).sqrt()


@pytest.mark.parametrize("case", CASES)
def test_sharded_weights_are_spread(case: str, results: Path) -> None:
    alone, both = (json.loads((results / case / by / "held.json").read_text()) for by in ("alone", "all"))
    if "fsdp2" not in case:
        assert both == alone
    elif "all weights" in case:
        assert both == pytest.approx(alone / 2, rel=0.02)  # a dimension of 97 is cut into 49 and 48
    else:
        assert both < 0.75 * alone


class Launched:
    """A trainer of two processes by `accelerate launch`."""

    def __init__(self, redis_url: str, run: str, folder: Path, model: Path, *flags: str) -> None:
        self.log = folder.parent / f"{run}.log"
        self.streams = RunStreams(redis_url, run)
        command = [
            *ACCELERATE_LAUNCH, "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
            "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
            "-m", "services.trainer", "--model", model, "--run-dir", folder, "--run", run,
            "--redis-url", redis_url, "--device", "cpu", "--threads", "1", "--batch-groups", str(BATCH),
            "--inference-urls", "", "--port", "0", *flags,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        self.workers: dict[int, int] = {}

    def until_version(self, number: int) -> None:
        """Waits for it; then `workers` has the processes by rank."""
        until(lambda: self._published() >= number, of=self.process, log=self.log, within_s=240)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in map(int, children):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"RANK="):
                    self.workers[int(entry[5:])] = pid
        assert sorted(self.workers) == [0, 1]

    def _published(self) -> int:
        policy = self.streams.policy.read()
        return policy.version.number if policy else -1

    def ended(self) -> int:
        """The launcher's exit status, once it is over."""
        return self.process.wait(timeout=120)

    @property
    def said(self) -> str:
        return self.log.read_text()

    @property
    def alive(self) -> list[int]:
        return [rank for rank, pid in self.workers.items() if Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"), seed=3, layers=1)


@contextlib.contextmanager
def launched(*arguments: Any) -> Iterator[Launched]:
    trainer = Launched(*arguments)
    try:
        yield trainer
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(trainer.process.pid, signal.SIGKILL)
        for pid in trainer.workers.values():  # in sessions of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        trainer.process.wait(120)


@pytest.mark.redis
def test_a_run_begun_by_one_process_goes_on_with_two(redis_url: str, tmp_path: Path, model: Path) -> None:
    """Until the last step."""
    groups = [make_group(number, vocabulary=80) for number in range(4 * BATCH)]
    with events() as running:
        one, two = (Run(redis_url, name, tmp_path / name, model, running) for name in ("one", "two"))
        for run, steps in ((one, 4), (two, 2)):
            run.add(groups)
            run.train(steps, kl="k3")
    flags = ("--max-steps", "4", "--kl", "k3", "--sharding", "fsdp2")
    with launched(redis_url, "two", two.folder, model, *flags) as trainer:
        assert trainer.ended() == 0, trainer.said
    rows = [
        [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        for run in (one, two)
    ]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4]
    for ours, theirs in zip(*rows, strict=True):
        for name in ("loss", "grad_norm", "entropy", "kl_behaviour", "kl_reference", "tokens", "ratio_max"):
            assert theirs[name] == pytest.approx(ours[name], rel=1e-4, abs=1e-7), name
    ours, theirs = (load(run.adapter(4)) for run in (one, two))
    for name, weight in ours.items():
        torch.testing.assert_close(theirs[name], weight, rtol=1e-3, atol=1e-5, msg=name)
    assert two.streams.counts().trained == 4 * BATCH
    assert two.accounted()


@pytest.mark.redis
@pytest.mark.parametrize(
    ("whom", "signal_", "said"),
    [
        ("rank 0", signal.SIGKILL, "no heartbeat of rank 0"),
        ("rank 1", signal.SIGTERM, "rank 1 ends"),
        ("the launcher", signal.SIGTERM, "rank 1 ends"),
    ],
)
def test_whoever_ends_takes_the_others_with_it(
    whom: str, signal_: signal.Signals, said: str, redis_url: str, tmp_path: Path
) -> None:
    """With all weights trained: without an adapter, each process starts without importing peft."""
    model = write_gpt2(tmp_path / "gpt2", seed=1)
    with launched(redis_url, "one", tmp_path / "one", model, "--lora-rank", "0") as trainer:
        trainer.until_version(0)
        ranks = {"rank 0": trainer.workers[0], "rank 1": trainer.workers[1]}
        os.kill(ranks.get(whom, trainer.process.pid), signal_)
        assert (trainer.ended() == 0) == (whom == "rank 1")
        assert trainer.alive == []
        assert said in trainer.said


@pytest.mark.redis
def test_a_kill_in_the_middle_of_a_step_loses_nothing(redis_url: str, tmp_path: Path, model: Path) -> None:
    with events() as running, launched(redis_url, "one", tmp_path / "one", model) as trainer:
        trainer.until_version(0)
        os.kill(trainer.workers[1], signal.SIGSTOP)
        run = Run(redis_url, "one", tmp_path / "one", model, running)
        run.add([make_group(number, vocabulary=80) for number in range(BATCH)])
        until(lambda: run.streams.groups.pending() == BATCH, of=trainer.process)
        time.sleep(1.0)  # now rank 0 waits for the other's part
        os.kill(trainer.workers[1], signal.SIGKILL)
        assert trainer.ended() != 0
        assert trainer.alive == []
        assert run.streams.counts().trained == 0
        run.train(1)
        assert run.streams.counts().trained == BATCH
        assert run.accounted()
