"""The notebook docs/tour.ipynb: committed without outputs, linked, and running as it is."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import A_WHOLE_RUN, ROOT

NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def test_the_notebook_has_no_outputs_and_its_links_lead_somewhere() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert len(links) > 2
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []


def outputs(cell: dict[str, object]) -> str:
    """What a cell printed, and the kinds of pictures that it shows."""
    shown = cell.get("outputs", [])
    assert isinstance(shown, list)
    texts = ["".join(each.get("text", [])) for each in shown]
    return "".join([*texts, *(" ".join(each.get("data", {})) for each in shown)])


@pytest.mark.parametrize("steps", [pytest.param(2, marks=[*A_WHOLE_RUN, pytest.mark.timeout(600)])])
def test_the_tour_runs_from_a_position_to_a_game(tmp_path: Path, steps: int) -> None:
    environment = {**os.environ, "TOUR_STEPS": str(steps), "TMPDIR": str(tmp_path)}
    script = (
        "import nbclient, nbformat, sys\n"
        "notebook = nbformat.read(sys.argv[1], as_version=4)\n"
        "nbclient.NotebookClient(notebook, timeout=500).execute()\n"
        "nbformat.write(notebook, sys.argv[2])\n"
    )
    done = tmp_path / "done.ipynb"
    subprocess.run([sys.executable, "-c", script, NOTEBOOK, done], cwd=ROOT, env=environment, check=True)
    cells = json.loads(done.read_text())["cells"]
    said = [text for cell in cells if cell["cell_type"] == "code" and (text := outputs(cell))]
    position, verdicts, run, curves, answer, game, archive, go_on = said
    assert "image/svg+xml" in position
    assert re.search(r"\\boxed\{.*\} +legal +reward [-+]0\.\d+\n", verdicts)
    assert "no_box" in verdicts
    assert f"step {steps:2} reward" in run
    assert "image/png" in curves
    assert answer.split()
    assert re.search(r'\[White "policy"\]\n.*\n1\. ', game, re.DOTALL)
    assert re.match(r"\d+ groups; .*\n([-+][\d.]+ .*\n){8}", archive)
    assert go_on == f"rookery view tour --runs-dir {next(tmp_path.glob('rookery-tour-*'))}\n"
