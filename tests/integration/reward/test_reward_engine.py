"""Engines die, hang, babble and vanish: each is a fault, never a reward, and the pool recovers."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import chess
import pytest

from rookery import metrics
from rookery.config.reward import RewardSettings
from rookery.engines import EnginePool, find_engine
from rookery.engines.fair_queue import MAX_CRASHES
from rookery.errors import EngineFault, Quarantined, RookeryError, SetupError, Unavailable
from rookery.trace import Outcome, ScoreItem, Verdict
from rookery.uci import Analysis, Query
from services.reward.scorer import Scorer
from tests.boards import random_boards
from tests.waiting import eventually, until

pytestmark = pytest.mark.stockfish

LONG = 50_000_000
SETTING = "--engine-path (REWARD_ENGINE_PATH)"
SHORT = Query(f"{chess.STARTING_FEN[:-4]} 0 1", nodes=500)


def pool_of(path: Path | str, *, engines: int = 1, queue: int = 100, deadline_s: float = 60.0) -> EnginePool:
    return EnginePool(Path(path), engines=engines, hash_mb=1, queue=queue, deadline_s=deadline_s)


def script(folder: Path, text: str) -> Path:
    path = folder / "engine"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_a_search_whose_engine_is_killed_is_made_again(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        query = Query(SHORT.fen, nodes=200_000)
        before = await pool.search(query)
        (pid,) = pool.pids
        unlucky = asyncio.create_task(pool.search(query))
        await asyncio.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        assert await unlucky == before
        assert pool.pids != (pid,)


async def test_a_position_that_costs_two_engines_is_quarantined_and_harms_no_other(
    stockfish_path: str, tmp_path: Path
) -> None:
    poison = "8/8/8/8/8/2k5/2q5/K7 w - - 0 1"
    path = script(tmp_path, f"""sed -u '/2k5.2q5.K7/q' | exec "{stockfish_path}" """)
    async with pool_of(path) as pool:
        queue = pool.queue()
        good = [Query(SHORT.fen, nodes=500 + i) for i in range(6)]
        results = await queue.search_all([*good[:3], Query(poison, 500), *good[3:]])
        assert isinstance(results[3], Quarantined) and poison in str(results[3])
        assert [type(result) for i, result in enumerate(results) if i != 3] == [Analysis] * 6
        with pytest.raises(Quarantined, match="2 engines died over"):
            await pool.search(Query(poison, nodes=7, move="a1a2"))
        assert (await pool.search(SHORT)).nodes >= 500


async def test_moves_queued_with_a_poison_position_cost_no_more_engines(
    stockfish_path: str, tmp_path: Path
) -> None:
    poison = "8/8/8/8/8/2k5/8/K6Q w - - 0 1"
    path = script(tmp_path, f"""sed -u '/2k5.8.K6Q/q' | exec "{stockfish_path}" """)
    async with pool_of(path) as pool:
        restarts = metrics.ENGINE_RESTARTS._value.get()
        moves = [move.uci() for move in chess.Board(poison).legal_moves]
        results = await pool.queue().search_all([Query(poison, 500, move) for move in moves])
        assert [type(result) for result in results] == [Quarantined] * len(moves)
        assert (await pool.search(SHORT)).nodes >= 500
        assert metrics.ENGINE_RESTARTS._value.get() - restarts == MAX_CRASHES


async def test_a_position_whose_engines_are_killed_by_somebody_is_innocent(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        query = Query(SHORT.fen, nodes=300_000)
        unlucky = asyncio.create_task(pool.search(query))
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            (pid,) = pool.pids
            await asyncio.sleep(0.02)
            os.kill(pid, number)
            await eventually(lambda pid=pid: pool.pids not in ((), (pid,)))
        assert await unlucky == await pool.search(query)


async def test_an_engine_that_died_idle_costs_nobody_anything(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        before = await pool.search(SHORT)
        os.kill(pool.pids[0], signal.SIGKILL)
        await asyncio.sleep(0.2)
        assert await pool.search(SHORT) == before


async def test_a_position_that_hangs_two_engines_is_quarantined(stockfish_path: str) -> None:
    async with pool_of(stockfish_path, deadline_s=1.0) as pool:
        with pytest.raises(Quarantined, match=r"the engine hung: no bestmove in 1 s"):
            await pool.search(Query(SHORT.fen, LONG))
        assert (await pool.search(Query("8/8/8/8/8/2k5/8/K6Q w - - 0 1", 500))).nodes >= 500


async def test_a_position_that_hangs_engines_is_quarantined_though_its_callers_leave(
    stockfish_path: str, tmp_path: Path
) -> None:
    path = script(tmp_path, f"""sed -u '/2k5.8.K6Q/e sleep 5' | exec "{stockfish_path}" """)
    hanging = Query("8/8/8/8/8/2k5/8/K6Q w - - 0 1", 500)
    async with pool_of(path, deadline_s=1.0) as pool:
        for _ in range(MAX_CRASHES):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pool.search(hanging), 0.1)
            await pool.search(SHORT)
        with pytest.raises(Quarantined, match="the engine hung"):
            await pool.search(hanging)


async def test_answers_are_the_same_bits_in_any_order_on_any_engine(stockfish_path: str) -> None:
    boards, rng = random_boards(40, seed=5, plies=(1, 40)), random.Random(5)
    queries = [Query(board.fen(), nodes=1000, lines=1 + i % 3) for i, board in enumerate(boards)]
    async with pool_of(stockfish_path) as one, pool_of(stockfish_path, engines=2) as two:
        expected = dict(zip(queries, await one.queue().search_all(queries), strict=True))
        for _ in range(3):
            rng.shuffle(queries)
            assert await two.queue().search_all(queries) == [expected[query] for query in queries]


async def test_several_lines_come_best_first_and_all_different(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        three, all_moves = await pool.queue().search_all(
            [Query(SHORT.fen, nodes=5000, lines=3), Query("8/8/8/8/8/2k5/8/K6Q w - - 0 1", 5000, lines=200)]
        )
        assert isinstance(three, Analysis) and isinstance(all_moves, Analysis)
        assert len({line.pv[0] for line in three.lines}) == 3
        scores = [line.evaluation.cp for line in three.lines]
        assert scores == sorted(scores, key=lambda cp: -(cp or 0))
        legal = chess.Board("8/8/8/8/8/2k5/8/K6Q w - - 0 1").legal_moves
        assert {line.pv[0] for line in all_moves.lines} == {move.uci() for move in legal}
        assert all(line.wdl is not None and sum(line.wdl) == 1000 for line in all_moves.lines)


async def test_requests_take_turns(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        big = asyncio.create_task(
            pool.queue().search_all([Query(SHORT.fen, nodes=20_000 + i) for i in range(60)])
        )
        await asyncio.sleep(0)
        await pool.search(SHORT)
        assert not big.done()
        big.cancel()


async def test_a_search_wanted_by_two_is_made_once_and_by_whose_turn_comes_first(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        made = metrics.ENGINE_NODES._value.get()
        crowd = [Query(SHORT.fen, nodes=20_000 + i) for i in range(40)]
        big = asyncio.create_task(pool.queue().search_all(crowd))
        await asyncio.sleep(0)
        last = await pool.search(crowd[-1])
        assert not big.done()
        results = await big
        assert results[-1] == last
        nodes = [result.nodes for result in results if isinstance(result, Analysis)]
        assert metrics.ENGINE_NODES._value.get() - made == sum(nodes)


async def test_a_full_queue_says_when_to_come_back(stockfish_path: str) -> None:
    async with pool_of(stockfish_path, queue=2) as pool:
        searches = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG + i))) for i in range(3)]
        await asyncio.sleep(0.05)
        searches.append(asyncio.create_task(pool.search(SHORT)))
        await asyncio.sleep(0.05)
        with pytest.raises(Unavailable, match="searches wait for 1 engines") as caught:
            await pool.search(SHORT)
        assert caught.value.retry_after_s is not None and caught.value.retry_after_s >= 1.0
        for search in searches:
            search.cancel()
    await asyncio.gather(*searches, return_exceptions=True)


async def test_no_request_alone_overruns_the_queue(stockfish_path: str) -> None:
    settings = RewardSettings(engine_path=Path(stockfish_path), engines=1, nodes=50, queue=40)
    board, items = chess.Board(), []
    for move in ("e4", "e5", "Nf3", "Nc6", "Bb5", "a6"):
        items.append(ScoreItem(board.fen(), rf"\boxed{{{move}}}", scheme="minmax"))
        board.push_san(move)
    async with await Scorer.start(settings) as scorer:
        results = await scorer.score_batch(items)
    assert [type(result) for result in results] == [Verdict] * len(items)


async def test_an_abandoned_search_gives_its_place_away(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        abandoned = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG))) for _ in range(3)]
        await asyncio.sleep(0)
        for search in abandoned:
            search.cancel()
        assert (await asyncio.wait_for(pool.search(SHORT), 60.0)).nodes >= 500


async def test_a_long_search_that_nobody_waits_for_is_stopped(stockfish_path: str) -> None:
    async with pool_of(stockfish_path, deadline_s=1000.0) as pool:
        (pid,) = pool.pids
        abandoned = asyncio.create_task(pool.search(Query(SHORT.fen, 2_000_000_000)))
        await asyncio.sleep(0.1)
        abandoned.cancel()
        assert (await asyncio.wait_for(pool.search(SHORT), 60.0)).nodes >= 500
        assert pool.pids == (pid,)


async def test_a_search_given_up_at_once_costs_no_engine(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        pids = pool.pids
        for number in range(30):
            hasty = asyncio.create_task(pool.search(Query(SHORT.fen, LONG + number)))
            await asyncio.sleep(0)
            hasty.cancel()
            assert (await pool.search(SHORT)).nodes >= 500
        assert pool.pids == pids


async def test_when_no_engine_starts_again_callers_hear_it_at_once(
    stockfish_path: str, tmp_path: Path
) -> None:
    path = script(tmp_path, f'exec "{stockfish_path}"')
    async with pool_of(path) as pool:
        path.write_text("#!/bin/sh\nexit 1\n")
        pid = pool.pids[0]
        doomed = asyncio.create_task(pool.search(Query(SHORT.fen, LONG)))
        waiting = asyncio.create_task(pool.search(SHORT))
        await asyncio.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        for search in (doomed, waiting):
            with pytest.raises(EngineFault, match="does not speak UCI"):
                await asyncio.wait_for(search, 60.0)
        assert not pool.ready
        with pytest.raises(EngineFault, match="none of 1 engines can be started"):
            await pool.search(SHORT)
        path.write_text(f'#!/bin/sh\nexec "{stockfish_path}"\n')
        await eventually(lambda: pool.ready)  # seen from outside, as /readyz sees it
        assert (await pool.search(SHORT)).nodes >= 500


async def test_stopping_fails_what_waits(stockfish_path: str) -> None:
    async with pool_of(stockfish_path) as pool:
        searches = [asyncio.create_task(pool.search(Query(SHORT.fen, LONG + i))) for i in range(3)]
        await asyncio.sleep(0.05)
    for search in searches:
        with pytest.raises(Unavailable, match="the engines are stopping"):
            await search
    with pytest.raises(Unavailable):
        await pool.search(SHORT)


@pytest.mark.parametrize(
    ("text", "start_s", "why"),
    [
        ("exit 3", 60.0, "the engine died"),
        ("cat > /dev/null", 0.5, "does not speak UCI: no bestmove in 0.5 s"),
        ("yes", 60.0, "printed .* bytes without an answer"),
        ("sed -u '/^go/Q'", 60.0, "the engine died"),
    ],
)
async def test_a_program_that_is_no_engine_is_a_set_up_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, start_s: float, why: str
) -> None:
    monkeypatch.setattr("rookery.engines.engine.START_S", start_s)
    with pytest.raises(SetupError, match=why):
        await Scorer.start(RewardSettings(engine_path=script(tmp_path, text), engines=1))


async def test_an_answer_without_a_score_is_a_fault_that_no_reward_comes_of(tmp_path: Path) -> None:
    answers = 'case "$line" in isready) echo readyok;; go*) echo; echo "bestmove e2e4";; esac'
    path = script(tmp_path, f"while read line; do {answers}; done")
    async with pool_of(path) as pool:
        (result,) = await pool.queue().search_all([SHORT])
        assert isinstance(result, RookeryError) and "no score from the engine" in str(result)


async def test_an_engine_without_what_the_win_model_needs_spoils_only_what_needs_it(
    stockfish_path: str, tmp_path: Path
) -> None:
    path = script(tmp_path, f"""exec "{stockfish_path}" | sed -u 's/ wdl [0-9]* [0-9]* [0-9]*//' """)
    settings = RewardSettings(engine_path=path, engines=1, win_model="wdl")
    async with await Scorer.start(settings) as scorer:
        fault, illegal = await scorer.score_batch(
            [ScoreItem(SHORT.fen, r"\boxed{e4}"), ScoreItem(chess.STARTING_FEN, r"\boxed{e5}")]
        )
    assert isinstance(fault, EngineFault) and "set --win-model lichess" in str(fault)
    assert isinstance(illegal, Verdict) and illegal.outcome is Outcome.ILLEGAL


def test_a_missing_engine_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("rookery.engines.engine._USUAL_PLACES", ())
    with pytest.raises(SetupError, match=r"apt-get install stockfish.*brew install.*REWARD_ENGINE_PATH"):
        find_engine(None, setting=SETTING)
    with pytest.raises(SetupError, match=r"REWARD_ENGINE_PATH.* is not a program"):
        find_engine(tmp_path / "none", setting=SETTING)


def test_engines_die_with_their_parent_even_by_sigkill(stockfish_path: str) -> None:
    code = (
        "import sys, time; from services.reward import LocalScorer; from pathlib import Path;"
        "from rookery.config.reward import RewardSettings;"
        "s = LocalScorer(RewardSettings(engines=2, engine_path=Path(sys.argv[1])));"
        "print(*s._scorer.pool.pids, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, stockfish_path], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    until(lambda: not any(map(running, pids)))


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie that only waits for its new parent to look."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
