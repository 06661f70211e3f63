"""The trainer after its last step: it ends, or rests for a supervisor that starts again whatever ends."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from services.trainer import process
from services.trainer.tiny import build_tiny
from tests.conftest import ROOT, free_port
from tests.integration.trainer.runs import BATCH, Run, events
from tests.unit.trainer.groups import make_group

pytestmark = pytest.mark.redis


WITHIN_S = 120.0


def resting(run: Run, port: int) -> "subprocess.Popen[str]":
    """A trainer of the run that finds nothing to do."""
    settings = run.settings(1)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINER_")},
        "TRAINER_REST": "true",
        "TRAINER_PORT": str(port),
        "ROOKERY_RUN": run.name,
        "ROOKERY_REDIS_URL": run.url,
    }
    told = "model run_dir device precision max_steps batch_groups inference_urls threads"
    for name in told.split():
        environment[f"TRAINER_{name.upper()}"] = str(getattr(settings, name))
    command = [sys.executable, "-m", "services.trainer"]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_finished_run_ends_or_rests_until_told_to_stop(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with events() as running:
        run = Run(
            redis_url, "one", tmp_path / "one", build_tiny(tmp_path / "tiny", seed=3, layers=2), running
        )
        run.add([make_group(number, vocabulary=90) for number in range(BATCH)])
        run.train(1)
    asyncio.run(asyncio.wait_for(process.run(run.settings(1, port=port)), WITHIN_S))
    rests = resting(run, port)
    try:
        assert rests.stderr
        for line in rests.stderr:
            if "training ended at version 1" in line:
                break
        time.sleep(0.5)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        assert rests.poll() is None
        rests.send_signal(signal.SIGTERM)
        assert rests.wait(WITHIN_S) == 0
    finally:
        rests.kill()
        rests.communicate()
