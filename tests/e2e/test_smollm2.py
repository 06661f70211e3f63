"""SmolLM2, a real language model, from data to the evaluation, as docs/smollm2.md goes, with few steps."""

import json
import math
import subprocess
from pathlib import Path

import pytest

from rookery.hub import read_manifest
from tests.conftest import A_WHOLE_RUN, ROOT
from tests.e2e.watching import ROOKERY, logs

pytestmark = [pytest.mark.nightly, pytest.mark.smollm2, *A_WHOLE_RUN, pytest.mark.timeout(3000)]

STYLE = "pieces-legal-san"


def rookery(line: str, *, folder: Path) -> str:
    """What the command prints, in which `OUT` stands for the folder."""
    argv = [*ROOKERY, *line.replace("OUT", str(folder)).split()]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:] + logs(folder)
    return done.stdout


def test_from_data_to_the_evaluation(smollm2: Path, tmp_path: Path) -> None:
    def run(line: str) -> str:
        return rookery(line, folder=tmp_path)

    run("data sample --count 12 --choices-min 3 --seed 1 --out OUT/positions")
    run(
        f"data tasks engine-moves --count 12 --positions OUT/positions/positions.parquet --style {STYLE} "
        "--remarks 3 --nodes 1000 --uniform-share 0.02 --best-share 0.4 --out OUT/moves --jsonl moves.jsonl"
    )
    run(
        f"sft --model {smollm2} --data OUT/moves/moves.jsonl --out OUT/sft --steps 8 --batch-size 2 "
        "--lr 1.5e-3 --warmup-steps 1 --lora-rank 16 --max-length 800 --micro-batch-tokens 1536"
    )
    losses = [row["loss"] for row in rows(tmp_path / "sft" / "metrics.jsonl")]
    assert len(losses) == 8
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])

    run(
        "up --model OUT/sft/model --runs-dir OUT/runs --run r --steps 2 --batch-groups 2 --group-size 2 "
        "--max-tokens 48 --nodes 200 --no-view --set trainer.process_rewards=true "
        "--set reward.scheme=delta+0.2*candidates+0.5*truth"
    )
    trained = rows(tmp_path / "runs" / "r" / "metrics.jsonl")
    assert [row["step"] for row in trained] == [1, 2]
    assert max(row["mismatch_mean"] for row in trained) < 2e-5
    assert all(math.isfinite(row["reward"]) for row in trained)

    run("merge OUT/runs/r@2 --out OUT/merged")
    assert read_manifest(tmp_path / "merged")["style"] == STYLE
    (tmp_path / "exam.jsonl").write_text(run("data sample --split heldout --count 3 --seed 7"))
    run(
        "evaluate model:OUT/merged,max-tokens=48 random --positions OUT/exam.jsonl --count 3 "
        "--samples 0 --sections positions --nodes 200 --out OUT/evaluation"
    )
    report = json.loads((tmp_path / "evaluation" / "report.json").read_text())
    assert len(report["players"]) == 2


def rows(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
