"""Engines die, hang, babble and vanish: each is a fault, never a reward, and the pool recovers."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import chess
import pytest

from rookery.errors import EngineFault, SetupError, Unavailable
from services.reward.engine import Engine, Query, find_engine
from services.reward.pool import EnginePool
from services.reward.scorer import Scorer
from services.reward.settings import RewardSettings

pytestmark = pytest.mark.stockfish

LONG = 50_000_000
SHORT = Query(f"{chess.STARTING_FEN[:-4]} 0 1", nodes=500)


def pool_of(path: Path | str, *, engines: int = 1, queue: int = 100, deadline_s: float = 60.0) -> EnginePool:
    return EnginePool(Path(path), engines=engines, hash_mb=1, queue=queue, deadline_s=deadline_s)


def script(folder: Path, text: str) -> Path:
    path = folder / "engine"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_an_engine_killed_mid_search_is_a_fault_and_is_replaced(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path).start()
    try:
        before = await pool.search(SHORT)
        (pid,) = pool.pids
        doomed = asyncio.create_task(pool.search(Query(SHORT.fen, LONG)))
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineFault, match="the engine died"):
            await doomed
        assert await pool.search(SHORT) == before
        assert pool.pids != (pid,)
    finally:
        await pool.close()


async def test_an_engine_that_died_idle_costs_nobody_anything(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path).start()
    try:
        before = await pool.search(SHORT)
        os.kill(pool.pids[0], signal.SIGKILL)
        await asyncio.sleep(0.2)
        assert await pool.search(SHORT) == before
    finally:
        await pool.close()


async def test_a_hung_search_is_a_fault_and_is_replaced(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path, deadline_s=2.0).start()
    try:
        with pytest.raises(EngineFault, match=r"the engine hung: no bestmove in 2 s"):
            await pool.search(Query(SHORT.fen, LONG))
        assert (await pool.search(SHORT)).nodes >= 500
    finally:
        await pool.close()


async def test_a_full_queue_says_when_to_come_back(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path, queue=2).start()
    try:
        searches = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG))) for _ in range(3)]
        await asyncio.sleep(0.05)
        searches.append(asyncio.create_task(pool.search(SHORT)))
        await asyncio.sleep(0.05)
        with pytest.raises(Unavailable, match="searches wait for 1 engines") as caught:
            await pool.search(SHORT)
        assert caught.value.retry_after_s is not None and caught.value.retry_after_s >= 1.0
    finally:
        for search in searches:
            search.cancel()
        await pool.close()
        await asyncio.gather(*searches, return_exceptions=True)


async def test_an_abandoned_search_gives_its_place_away(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path).start()
    try:
        abandoned = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG))) for _ in range(3)]
        await asyncio.sleep(0)
        for search in abandoned:
            search.cancel()
        assert (await asyncio.wait_for(pool.search(SHORT), 60.0)).nodes >= 500
    finally:
        await pool.close()


async def test_when_no_engine_starts_again_callers_hear_it_at_once(
    stockfish_path: str, tmp_path: Path
) -> None:
    path = script(tmp_path, f'exec "{stockfish_path}"')
    pool = await pool_of(path).start()
    try:
        path.write_text("#!/bin/sh\nexit 1\n")
        pid = pool.pids[0]
        doomed = asyncio.create_task(pool.search(Query(SHORT.fen, LONG)))
        waiting = asyncio.create_task(pool.search(SHORT))
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        for search in (doomed, waiting):
            with pytest.raises(EngineFault):
                await asyncio.wait_for(search, 60.0)
        assert not pool.ready
        with pytest.raises(EngineFault, match="none of 1 engines can be started"):
            await pool.search(SHORT)
        path.write_text(f'#!/bin/sh\nexec "{stockfish_path}"\n')
        async with asyncio.timeout(60):
            while not pool.ready:  # noqa: ASYNC110 -- seen from outside, as /readyz sees it
                await asyncio.sleep(0.05)
        assert (await pool.search(SHORT)).nodes >= 500
    finally:
        await pool.close()


async def test_stopping_fails_what_waits(stockfish_path: str) -> None:
    pool = await pool_of(stockfish_path).start()
    searches = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG))) for _ in range(3)]
    await asyncio.sleep(0.05)
    await pool.close()
    for search in searches:
        with pytest.raises(Unavailable, match="stops"):
            await search
    with pytest.raises(Unavailable):
        await pool.search(SHORT)


@pytest.mark.parametrize(
    ("text", "start_s", "why"),
    [
        ("exit 3", 60.0, "the engine died"),
        ("cat > /dev/null", 0.5, "the engine hung: no readyok"),
        ("yes", 60.0, "printed .* bytes without an answer"),
    ],
)
async def test_a_program_that_is_no_engine_is_a_set_up_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, start_s: float, why: str
) -> None:
    monkeypatch.setattr("services.reward.engine.START_S", start_s)
    with pytest.raises(SetupError, match=why):
        await Scorer.start(RewardSettings(engine_path=script(tmp_path, text), engines=1))


async def test_an_answer_without_a_score_is_a_fault(tmp_path: Path) -> None:
    path = script(tmp_path, 'echo; echo readyok; while read line; do echo; echo "bestmove e2e4"; done')
    engine = await Engine.start(path, hash_mb=1)
    with pytest.raises(EngineFault, match="no score from the engine"):
        await engine.search(SHORT, timeout_s=5.0)
    await engine.close()
    assert not engine.alive
    with pytest.raises(EngineFault, match="the engine died"):
        await engine.search(SHORT, timeout_s=5.0)


def test_a_missing_engine_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("services.reward.engine._USUAL_PLACES", ())
    with pytest.raises(SetupError, match=r"apt-get install stockfish.*brew install.*REWARD_ENGINE_PATH"):
        find_engine(None)
    with pytest.raises(SetupError, match=r"REWARD_ENGINE_PATH.* is no program"):
        find_engine(tmp_path / "none")


def test_engines_die_with_their_parent_even_by_sigkill(stockfish_path: str) -> None:
    code = (
        "import sys, time; from services.reward.local import LocalScorer; from pathlib import Path;"
        "from services.reward.settings import RewardSettings;"
        "s = LocalScorer(RewardSettings(engines=2, engine_path=Path(sys.argv[1])));"
        "print(*s._scorer.pool.pids, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, stockfish_path], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + 60.0
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(running(pid) for pid in pids)


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie that only waits for its new parent to look."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
