"""The alert rules, Prometheus's configuration and the example of Alertmanager's, by their own checkers."""

import re
import shutil
import subprocess

import pytest

from rookery.waits import STEP_S
from tests.conftest import ROOT, require

pytestmark = pytest.mark.prometheus

FOLDER = ROOT / "deploy" / "prometheus"
NAMES = re.findall(r"- alert: (\w+)", (FOLDER / "rules.yml").read_text())


def promtool(*arguments: str) -> None:
    command = [f"{require('prometheus')}/promtool", *arguments]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_is_valid() -> None:
    promtool("check", "config", "prometheus.yml")


def test_each_alert_fires_for_its_cause_alone() -> None:
    promtool("test", "rules", "rules.test.yml")


def test_the_example_for_alertmanager_is_valid() -> None:
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("no `amtool` on the path: apt-get install prometheus-alertmanager")
    command = [amtool, "check-config", "alertmanager.yml"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 receivers" in done.stdout


def test_a_wait_for_a_step_is_as_long_as_the_trainer_may_take() -> None:
    stalled = (FOLDER / "rules.yml").read_text().partition("TrainerStalled")[2].partition("labels:")[0]
    assert f"> {STEP_S:.0f}" in stalled


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_is_tested_both_ways_and_explained(name: str) -> None:
    tests = (FOLDER / "rules.test.yml").read_text()
    assert re.search(rf"alertname: {name} }}", tests), f"no test says when {name} is silent"
    assert re.search(rf"alertname: {name}\n +exp_alerts", tests), f"no test fires {name}"
    assert f"### {name}" in (ROOT / "docs" / "operations.md").read_text()
