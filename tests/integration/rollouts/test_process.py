"""The process as an operator meets it: started by flags, killed, told to stop."""

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from services.inference.rollouts.group_generator import seed_of
from tests.builders import feed, numbered_position
from tests.conftest import free_port
from tests.integration.rollouts.conftest import BATCH_GROUPS, GROUP_SIZE, House, groups
from tests.waiting import eventually

pytestmark = pytest.mark.redis


@contextlib.asynccontextmanager
async def process(house: House, redis_url: str, *flags: str) -> AsyncIterator[tuple[Process, str]]:
    port = free_port()
    command = [sys.executable, "-m", "services.inference.rollouts", "--run", "test", "--redis-url", redis_url]
    command += ["--inference-urls", house.urls[0], "--reward-target", house.reward_target]
    command += ["--group-size", str(GROUP_SIZE), "--batch-groups", str(BATCH_GROUPS)]
    command += ["--host", "127.0.0.1", "--port", str(port), *flags]
    started = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=DEVNULL)
    try:
        yield started, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await asyncio.wait_for(started.communicate(), 60)


async def stop(started: Process) -> str:
    started.send_signal(signal.SIGTERM)
    _, said = await asyncio.wait_for(started.communicate(), 30)
    assert started.returncode == 0, said
    return said.decode()


async def test_told_to_stop_it_finishes_what_is_in_work(house: House, redis_url: str) -> None:
    house.inference[0].delay_s = 1.0
    feed(house.streams, 3)
    async with process(house, redis_url) as (started, _):
        await eventually(lambda: house.inference[0].working == 3)
        await stop(started)
    assert house.streams.counts().generated == 3
    assert house.streams.positions.pending() == 0


async def test_killed_it_takes_up_what_it_held(house: House, redis_url: str) -> None:
    house.inference[0].delay_s = 60
    feed(house.streams, 3)
    async with process(house, redis_url) as (started, _):
        await eventually(lambda: house.inference[0].working == 3)
        started.kill()
        await asyncio.wait_for(started.wait(), 60)
    assert house.streams.positions.pending() == 3
    house.inference[0].delay_s = 0
    async with process(house, redis_url) as (started, _):
        await house.generated(3)
        said = await stop(started)
    assert "resumes 3 positions of an earlier process" in said
    assert len({group.id for group in groups(house.streams)}) == 3
    assert house.streams.overview().astray == 0


@pytest.mark.parametrize("place", ["rollouts.generated", "rollouts.published"])
async def test_killed_around_a_publication_it_publishes_each_group_once(
    house: House, redis_url: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(house.streams, 3)
    monkeypatch.setenv("ROOKERY_FAILPOINTS", f"{place}=kill@2")
    async with process(house, redis_url) as (started, _):
        assert await asyncio.wait_for(started.wait(), 60) == -signal.SIGKILL
    monkeypatch.delenv("ROOKERY_FAILPOINTS")
    feed(house.streams, 1)  # which only the second process can answer
    async with process(house, redis_url) as (started, _):
        await house.generated(4)
        await stop(started)
    assert len({group.id for group in groups(house.streams)}) == 4
    assert (house.streams.overview().astray, house.streams.positions.length()) == (0, 0)


@pytest.mark.parametrize(
    "place", ["rollouts.played", "rollouts.stored", "rollouts.generated", "rollouts.published"]
)
async def test_killed_in_mid_episode_each_turn_is_played_once_and_as_if_undisturbed(
    house: House, redis_url: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inference = house.inference[0]
    inference.texts = (*["<tool>board</tool>"] * 4, "\\boxed{e2e4}")
    entries = [replace(numbered_position(n), episode="tools,turns=9") for n in range(2)]
    house.streams.positions.add(entries, cursor=0)
    passage = {"rollouts.played": 3, "rollouts.stored": 3, "rollouts.generated": 2, "rollouts.published": 1}
    monkeypatch.setenv("ROOKERY_FAILPOINTS", f"{place}=kill@{passage[place]}")
    async with process(house, redis_url, "--max-inflight", "1") as (started, _):
        assert await asyncio.wait_for(started.wait(), 60) == -signal.SIGKILL
    monkeypatch.delenv("ROOKERY_FAILPOINTS")
    state = house.streams.overview()
    assert (state.astray, state.positions) == (0, 2 - state.counts.generated)
    async with process(house, redis_url) as (started, _):
        await house.generated(2)
        await stop(started)
    made = groups(house.streams)
    assert [len(trace.turns) for group in made for trace in group.traces] == [5] * 2 * GROUP_SIZE
    for group in made:
        for trace in group.traces:
            texts = [turn.completion.text.split()[-1] for turn in trace.turns]
            seeds = [seed_of(0, f"{trace.id}.{number}") for number in range(1, 5)]
            assert [str(turn.completion.seed) for turn in trace.turns] == texts
            assert [turn.completion.seed for turn in trace.turns[1:]] == seeds
    first, later = 1, 4 * GROUP_SIZE  # requests of a group: its first turns are one
    again = len(inference.requests) - 2 * (first + later)
    most = 0 if place == "rollouts.published" else GROUP_SIZE
    assert again in range(most + 1), "turns that were not stored, at most one of each episode"
    assert (house.streams.overview().astray, house.streams.positions.length()) == (0, 0)
    assert not house.streams.redis.call(lambda client: client.exists("rookery:test:positions:turns"))


async def test_probes_and_metrics_say_what_is_the_matter(house: House, redis_url: str) -> None:
    house.inference[0].ready = False
    async with process(house, redis_url) as (started, url), httpx.AsyncClient(base_url=url) as http:

        async def is_good(path: str) -> bool:
            with contextlib.suppress(httpx.ConnectError):
                return (await http.get(path)).status_code == 200
            return False

        async def metrics_have(text: str) -> bool:
            return text in (await http.get("/metrics")).text

        await eventually(lambda: is_good("/healthz"))
        ready = await http.get("/readyz")
        assert ready.status_code == 503
        assert "no inference server is ready" in ready.text
        house.inference[0].ready = True
        await eventually(lambda: is_good("/readyz"))
        feed(house.streams, 1)
        await house.generated(1)
        await eventually(lambda: metrics_have('rookery_rollout_groups_total{result="published"} 1.0'))
        assert await metrics_have("rookery_positions_wait_seconds_total")
        await stop(started)


async def test_other_sizes_than_the_run_s_are_refused(house: House, redis_url: str) -> None:
    house.streams.agree({"group_size": 16})
    async with process(house, redis_url) as (started, _):
        _, said = await asyncio.wait_for(started.communicate(), 60)
    assert started.returncode == 2
    assert f"group_size is 16 in the run and {GROUP_SIZE} here" in said.decode()
