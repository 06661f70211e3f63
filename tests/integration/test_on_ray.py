"""The same work on a real Ray cluster of two nodes as on this machine, while workers and a node die."""

import asyncio
import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from arena.matches.session import run_match
from chess_datasets.__main__ import main
from chess_datasets.jobs import Progress
from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery.config.arena import MatchSettings
from rookery.errors import InvalidInput, SetupError, Unavailable
from rookery.processes import workers as rookery_workers
from rookery.processes.workers import Workers
from tests.unit.rookery.records import GROUP
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.stockfish, pytest.mark.filterwarnings("ignore")]

CALLS = "ray::_call"
"""What Ray calls a process while it makes one of our calls."""


class TwoNodes:
    """A cluster of two nodes with a CPU each, on this machine."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 80 << 20}
        self._cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
        self._second = self._cluster.add_node(**size)
        self.address = self._cluster.address

    def kill_worker(self) -> int:
        """Kills a process in the middle of a call. Returns its id."""
        return until(self._kill_a_caller)

    def _kill_a_caller(self) -> int:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it ended meanwhile
                if " ".join(process.cmdline()[:1]).startswith(CALLS):
                    process.kill()
                    return process.pid
        return 0

    def kill_node(self) -> None:
        self._cluster.remove_node(self._second, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setattr(rookery_workers, "RETRIES", 1)
        nodes = TwoNodes()
        yield nodes
        nodes.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_both(folder: Path, cluster: TwoNodes, *argv: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files that a command writes here and on the cluster."""
    assert main([*argv, "--out", str(folder / "here")]) == 0
    assert main([*argv, "--out", str(folder / "there"), "--ray", cluster.address]) == 0
    return files(folder / "here"), files(folder / "there")


def fail(kind: str) -> None:
    if kind == "dies":
        os._exit(1)
    raise InvalidInput(kind)


def test_errors_are_the_callers(cluster: TwoNodes) -> None:
    with Workers(ray=cluster.address) as workers:
        assert workers.jobs == 2
        with pytest.raises(InvalidInput, match="no such move"):
            workers.submit(fail, "no such move").result()
        with pytest.raises(Unavailable, match="in 2 attempts: WorkerCrashedError"):
            workers.submit(fail, "dies").result()
    with pytest.raises(SetupError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        Workers(ray="127.0.0.1:1")


def test_labels_are_the_same(cluster: TwoNodes, tmp_path: Path) -> None:
    here, there = on_both(
        tmp_path, cluster, "tasks", "rookworld", "--count", "20", "--nodes", "5000", "--engines", "1"
    )
    assert here.keys() == {"tasks.parquet", "manifest.json"}
    assert here == there


def test_pairs_and_rescored_answers_are_the_same(cluster: TwoNodes, tmp_path: Path) -> None:
    here, there = on_both(tmp_path, cluster, "pairs", "--count", "6", "--nodes", "300")
    assert here.keys() == {"pairs.parquet", "manifest.json"}
    assert here == there
    groups = [(f"176372101400{n}-0", replace(GROUP, id=f"g{n}")) for n in range(3)]
    TraceArchive(open_folder(tmp_path / "archive")).write("r", groups, first=groups[0][0], last=groups[-1][0])
    argv = ["rescore", str(tmp_path / "archive"), "--scheme", "best", "--json"]
    assert main([*argv, "--out", str(tmp_path / "here.parquet")]) == 0
    assert main([*argv, "--out", str(tmp_path / "there.parquet"), "--ray", cluster.address]) == 0
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()


def test_games_are_the_same(cluster: TwoNodes, tmp_path: Path) -> None:
    reports = {}
    for place, ray in (("here", None), ("there", cluster.address)):
        settings = MatchSettings(
            player="stockfish,nodes=50",
            opponent="random",
            referee="stockfish,nodes=100",
            pairs=2,
            out=tmp_path / place,
            ray=ray,
        )
        reports[place] = asyncio.run(run_match(settings, console=Console(file=io.StringIO())))
    assert (tmp_path / "here" / "games.pgn").read_bytes() == (tmp_path / "there" / "games.pgn").read_bytes()
    assert reports["here"].encounters == reports["there"].encounters


def test_dead_workers_and_nodes_lose_and_double_nothing(
    cluster: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["annotate", "--count", "56", "--nodes", "300", "--engines", "1"]
    assert main([*argv, "--out", str(tmp_path / "here")]) == 0
    done, killed, advance = [], [], Progress.advance

    def kill(progress: Progress, count: int) -> None:
        advance(progress, count)
        done.append(count)
        if sum(done) == 8:
            killed.append(cluster.kill_worker())
        if sum(done) == 16:
            cluster.kill_node()
            killed.append("node")

    monkeypatch.setattr(Progress, "advance", kill)
    argv[-1] = "2"
    assert main([*argv, "--out", str(tmp_path / "there"), "--ray", cluster.address]) == 0
    assert killed[1:] == ["node"]
    assert not psutil.pid_exists(killed[0])
    here, there = files(tmp_path / "here"), files(tmp_path / "there")
    ids = [json.loads(line)["id"] for line in there["annotations.jsonl"].splitlines()]
    assert len(ids) == len(set(ids)) == 56
    assert here == there
