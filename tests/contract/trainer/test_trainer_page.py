"""The trainer's pages tell the truth: commands that train on files parse, the server answers as shown."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from rookery.commands import BY_NAME, load
from rookery.config.finetune import RewardModelSettings, RewardServerSettings
from tests.conftest import ROOT
from tests.curl import curls, run_curl
from tests.servers import serve_http
from tests.unit.trainer.preferences import write_pairs

pytestmark = pytest.mark.torch

PAGE = ROOT / "services/trainer/README.md"
TEXT = PAGE.read_text() + (ROOT / "docs/learning.md").read_text()
COMMANDS = re.findall(r"^\$ (rookery .+)", TEXT.replace("\\\n", " "), re.MULTILINE)
FINETUNE_COMMANDS = {"sft", "reward-model", "dpo"}
ON_FILES = [words for words in map(shlex.split, COMMANDS) if words[1] in FINETUNE_COMMANDS]


@pytest.mark.parametrize("words", ON_FILES, ids=lambda words: f"{words[1]}-{len(words)}")
def test_the_commands_that_train_on_files_parse(words: list[str]) -> None:
    parsed = load(BY_NAME[words[1]].settings).parse(words[2:], prog=words[1])
    named = {Path(parsed.model).name, Path(parsed.data).suffix}
    assert named <= {"rook-tiny", "Qwen3-0.6B", ".jsonl", ".parquet"}


def test_each_of_them_is_shown() -> None:
    assert {words[1] for words in ON_FILES} == FINETUNE_COMMANDS
    served = [words[3:] for words in map(shlex.split, COMMANDS) if words[1:3] == ["serve", "reward-model"]]
    assert [RewardServerSettings.parse(flags, prog="serve").port for flags in served] == [8007]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    from services.trainer.reward_model import training

    data = write_pairs(tmp_path / "pairs.jsonl", count=60)
    settings = RewardModelSettings(
        model=ROOT / "models/rook-tiny", data=data, out=tmp_path / "out", steps=1, batch_size=8, threads=1
    )
    return training.run(settings)


async def test_the_request_gets_the_answer_it_shows(model: Path) -> None:
    import torch

    from services.trainer.reward_model.server import BatchQueue, RewardScorer, create_app

    desk = BatchQueue(RewardScorer(model, rows=2, device=torch.device("cpu")), limit=8)
    stopping = asyncio.Event()
    work = asyncio.create_task(desk.run(stopping))
    async with serve_http(create_app(desk)) as url:
        [shown] = curls(PAGE)
        answer = await asyncio.to_thread(run_curl, shown, {"http://localhost:8007": url})
        stopping.set()
        await work
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"rewards", "sha256"}
    assert len(answer.json()["rewards"]) == 1
