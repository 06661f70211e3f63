"""`rookery rescore` with a real reward service of its own, over an archive that another one judged."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from chess_datasets.__main__ import main
from chess_datasets.commands.engines import reward_client
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records
from chess_datasets.traces.archive import TraceArchive
from chess_datasets.traces.rescore import RESCORED
from rookery.clients import RewardClient, ScoreItem
from rookery.errors import SetupError
from rookery.trace import Prompt, Sampling, Trace, TraceGroup, Turn
from tests.conftest import free_port
from tests.unit.rookery.records import GROUP

pytestmark = pytest.mark.stockfish

FENS = [
    "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1",
]
ANSWERS = ["\\boxed{Qxf7#}", "\\boxed{Ra8#}", "\\boxed{Ra1}", "\\boxed{Nc3}", "no idea", "\\boxed{"]


async def judged(client: RewardClient, number: int) -> TraceGroup:
    items = [ScoreItem(FENS[number], answer) for answer in ANSWERS]
    verdicts = await client.score(items, scheme="delta")
    traces = [
        Trace(f"g{number}-{i}", (Turn(replace(GROUP.traces[0].completion, text=item.response), verdict),))
        for i, (item, verdict) in enumerate(zip(items, verdicts, strict=True))
    ]
    return replace(
        GROUP,
        id=f"g{number}",
        prompt=Prompt("fen", (), FENS[number]),
        sampling=Sampling(),
        traces=tuple(traces),
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")

    async def make() -> list[TraceGroup]:
        async with reward_client(None, nodes=321) as client:
            return [await judged(client, number) for number in range(len(FENS))]

    groups = asyncio.run(make())
    archive = TraceArchive(open_folder(folder))
    for place, group in enumerate(groups):
        entry = f"176372101400{place}-0"
        archive.write("r1", [(entry, group)], first=entry, last=entry)
    return folder


def test_the_same_scheme_changes_nothing(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(archive), "--scheme", "delta", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["reward_correlation"] == summary["advantage_correlation"] == 1
    assert summary["advantage_signs"]["kept"] == summary["answers"] == 12
    # The service that was started searched as many nodes as the archive's.
    assert summary["reward_versions"]["before"] == summary["reward_versions"]["after"]
    assert "/nodes-321/" in next(iter(summary["reward_versions"]["after"]))


def test_another_scheme_is_compared(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "best.parquet"
    assert main(["rescore", str(archive), "--scheme", "best", "--json", "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    (version,) = summary["reward_versions"]["after"]
    assert version.startswith("best-")
    rows = {row.trace_id: row for row in read_records(open_folder(tmp_path), "best.parquet", RESCORED)}
    assert len(rows) == 12
    mate = rows["g0-0"]
    assert (mate.reward_before, mate.reward_after, mate.outcome) == (0.0, 1.0, "legal")
    assert summary["mean_reward"]["legal"]["after"] > summary["mean_reward"]["no_box"]["after"]


def test_the_table_is_for_people(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(archive), "--scheme", "best", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    for words in ("1 groups, 6 answers", "after   best-", "groups without variance", "illegal", "no_box"):
        assert words in shown


def test_an_unknown_scheme_is_named(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(archive), "--scheme", "nope"]) == 2
    assert "no scheme 'nope'" in capsys.readouterr().err


def test_an_empty_archive_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(tmp_path), "--scheme", "best", "--run", "r9"]) == 2
    assert f"no groups in '{tmp_path}' of run 'r9'" in capsys.readouterr().err


async def test_a_service_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match="no reward service is ready at 'localhost:"):
        async with reward_client(f"localhost:{free_port()}"):
            pass


async def test_a_service_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_ENGINE_PATH", str(tmp_path / "no-such-engine"))
    with pytest.raises(SetupError, match=r"the reward service does not start: .*no-such-engine"):
        async with reward_client(None):
            pass
