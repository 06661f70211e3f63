import asyncio
import contextlib
import math
from dataclasses import replace

import pytest

from rookery import serving, waits
from rookery.config.rollouts import RolloutsSettings
from rookery.errors import RookeryError, SetupError
from rookery.metrics import ROLLOUT_EPISODES
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from services.inference.rollouts import loop as loop_module
from services.inference.rollouts.__main__ import run
from services.inference.rollouts.admission import Playing
from services.inference.rollouts.group_generator import seed_of
from tests.builders import feed, numbered_position
from tests.integration.rollouts.conftest import BATCH_GROUPS, GROUP_SIZE, House, groups, settle
from tests.integration.rollouts.standins import Inference, ScoringInference
from tests.servers import serve_http
from tests.waiting import eventually

pytestmark = pytest.mark.redis

AGAINST_A_VERSION = "game,opponent=policy,every=3,colours=both"
"""In half of the games, the opponent begins."""


async def test_a_position_becomes_a_group_stamped_with_its_policy(house: House) -> None:
    house.inference[0].version = 3
    feed(house.streams, 1)
    await house.makes(1)
    (group,) = groups(house.streams)
    assert (group.run, group.position.id, group.base_model) == ("test", "x:0:0", "tiny")
    assert (group.policy.number, group.policy.name) == (3, "policy-v000003")
    assert house.inference[0].requests[0]["model"] == "policy-v000003"
    assert group.prompt_token_ids == (1, 2)
    assert group.rewards == (-0.25,) * GROUP_SIZE
    assert [t.id for t in group.traces] == [f"{group.id}-0", f"{group.id}-1"]
    first = seed_of(7, group.id)
    assert [t.completion.seed for t in group.traces] == [first, first + 1]
    assert [t.completion.text.split()[-1] for t in group.traces] == [str(first), str(first + 1)]
    assert house.streams.positions.length() == 0


async def test_the_influence_of_sentences_is_measured_by_the_version_that_wrote_them(house: House) -> None:
    """The answers are judged again with the effects: those of a plain softmax over the judged moves."""
    scoring = ScoringInference(texts=("Pin. Fork.\\boxed{c}",))
    house.reward.influence = True
    models = []
    async with serve_http(scoring.app()) as url:
        house.urls = [url]
        for number, house.influence_share in enumerate((1.0, 0.0), start=1):
            feed(house.streams, 1)
            await house.makes(number)
            models.append({body["model"] for body in scoring.requests if "logprob_token_ids" in body})
            scoring.requests.clear()

    def expected_regret(beginning: str) -> float:
        # The prompt has two tokens, the lead one for each character; c and d are the moves.
        length = 2 + len(beginning) + len("\\boxed{")
        weights = [math.exp(-place * length / 50) for place in (2, 3)]
        return 0.25 * weights[1] / sum(weights)

    whole, without, none = map(expected_regret, ("Pin. Fork.", "Fork.", ""))
    first, second = groups(house.streams)
    assert models == [{"policy-v000000"}, set()]
    assert first.rewards == pytest.approx([-0.25 + without - whole] * GROUP_SIZE)
    assert second.rewards == (-0.25,) * GROUP_SIZE
    effects = [[(e.start, e.end, e.regret) for e in item.effects] for item in house.reward.requests]
    measured = [(0, 0, pytest.approx(none - whole)), (0, 4, pytest.approx(without - whole))]
    assert effects == [[], [], measured, measured, [], []]


@pytest.mark.parametrize("status", [400, 404], ids=["the context is exceeded", "the version is retired"])
async def test_what_cannot_be_measured_has_no_influence(house: House, status: int) -> None:
    scoring = ScoringInference(texts=("Pin. Fork.\\boxed{c}",), scoring_status=status)
    house.reward.influence, house.influence_share = True, 1.0
    async with serve_http(scoring.app()) as url:
        house.urls = [url]
        feed(house.streams, 1)
        await house.makes(1)
    assert scoring.scored == 1
    assert groups(house.streams)[0].rewards == (-0.25,) * GROUP_SIZE


async def test_a_server_that_goes_away_while_it_measures_costs_a_position_nothing(house: House) -> None:
    scoring = ScoringInference(texts=("Pin. Fork.\\boxed{c}",), scoring_status=500)
    house.reward.influence, house.influence_share = True, 1.0
    async with serve_http(scoring.app()) as url:
        house.urls = [url]
        feed(house.streams, 1)
        async with house.running() as loop:
            for number in range(1, 2 * loop_module.MAX_FAULTS):
                await eventually(
                    lambda number=number: scoring.scored == number and not loop._in_flight.running
                )
                scoring.ready = True
            scoring.scoring_status = 200
            await house.generated(1)
    assert house.streams.counts().dead == {}


@pytest.mark.parametrize("staleness", [0, 2])
async def test_generation_never_runs_further_ahead_than_allowed(house: House, staleness: int) -> None:
    house.staleness = staleness
    bound = (staleness + 1) * BATCH_GROUPS
    feed(house.streams, 2 * bound)
    async with house.running():
        await house.generated(bound)
        await asyncio.sleep(0.5)
        assert house.streams.counts().generated == bound
        await asyncio.to_thread(settle, house.streams, BATCH_GROUPS)
        await asyncio.sleep(0.5)
        assert house.streams.counts().generated == bound, "trained, but the new version is not served yet"
        house.inference[0].version = 1
        await house.generated(bound + BATCH_GROUPS)


async def test_groups_are_made_ahead_only_as_the_trainer_needs_them(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "STEP_S", 0.0)
    house.staleness, house.just_in_time = 3, True
    feed(house.streams, 11 * BATCH_GROUPS)

    def waited_for() -> set[str]:
        return {wait.what for wait in waits.overdue()}

    async def train(batches: int, *, version: int, last: bool = False) -> None:
        await asyncio.to_thread(settle, house.streams, batches * BATCH_GROUPS)
        adapter = Adapter(PolicyVersion(version, "aa"), f"/a/{version}", "tiny")
        house.streams.policy.publish(adapter, epoch=house.streams.take_over(), last=last)
        house.inference[0].version = version

    async def generates(batches: int) -> None:
        await house.generated(batches * BATCH_GROUPS)
        await asyncio.sleep(0.5)
        assert house.streams.counts().generated == batches * BATCH_GROUPS

    await train(0, version=0)
    async with house.running():
        await generates(4)
        for version in (1, 2):  # three batches waited, and one was needed
            await train(1, version=version)
            await generates(4 + version)
        for version in (3, 4):  # two were left over three times: one is made ahead
            await train(1, version=version)
            await generates(6)
        assert waited_for() == {"a new version"}
        await train(1, version=5)
        await generates(7)
        await train(2, version=6)  # none waited: a batch more is made ahead
        await generates(9)
        await train(1, version=7, last=True)
        await generates(10)
        assert waited_for() == set(), "the run has ended"


async def test_dropped_groups_are_made_again(house: House) -> None:
    feed(house.streams, 3 * BATCH_GROUPS)
    async with house.running():
        await house.generated(BATCH_GROUPS)
        await asyncio.to_thread(settle, house.streams, 1, result="dropped:stale")
        await house.generated(BATCH_GROUPS + 1)


async def test_in_flight_is_bounded(house: House) -> None:
    house.staleness, house.max_inflight, house.inference[0].delay_s = 9, 3, 0.05
    feed(house.streams, 20)
    await house.makes(20)
    assert house.inference[0].most_working == 3


async def test_a_new_version_is_used_at_once(house: House) -> None:
    house.staleness = 9
    async with house.running() as loop:
        house.inference[0].version = 1
        await eventually(lambda: loop._peers.version == 1)
        await asyncio.to_thread(feed, house.streams, 1)
        await house.generated(1)
    assert [g.policy.number for g in groups(house.streams)] == [1]


@pytest.mark.parametrize("episode", ["", AGAINST_A_VERSION])
async def test_a_retired_version_is_asked_for_anew(
    house: House, monkeypatch: pytest.MonkeyPatch, episode: str
) -> None:
    monkeypatch.setattr("services.inference.rollouts.peers.POLICY_POLL_S", 60.0)
    inference = house.inference[0]
    async with house.running() as loop:
        await eventually(lambda: loop._peers.version == 0)
        inference.version, inference.retired = 2, {0, 1}
        entry = replace(numbered_position(0), episode=episode)
        await asyncio.to_thread(house.streams.positions.add, [entry], cursor=0)
        await house.generated(1)
    models = [body["model"] for body in inference.requests]
    assert models == ["policy-v000000"] + ["policy-v000002"] * (3 if episode else 1)
    assert [g.policy.number for g in groups(house.streams)] == [2]


async def test_a_fault_is_retried_with_the_same_seed(house: House) -> None:
    house.inference[0].failures = 2
    feed(house.streams, 1)
    await house.makes(1)
    assert len(house.inference[0].requests) == 3
    assert len({r["seed"] for r in house.inference[0].requests}) == 1
    assert house.streams.counts().dead == {}


async def test_what_the_server_gave_up_is_asked_again_and_never_scored(house: House) -> None:
    inference = house.inference[0]
    inference.aborted, inference.partial = ["abort", None], 1
    feed(house.streams, 1)
    await house.makes(1)
    assert len(inference.requests) == 3
    (group,) = groups(house.streams)
    assert [trace.completion.finish_reason for trace in group.traces] == ["stop"] * GROUP_SIZE
    assert house.streams.counts().dead == {}


async def test_an_entry_out_of_tries_is_dead_lettered(house: House) -> None:
    house.inference[0].failures = 1000
    feed(house.streams, 1)
    await house.gives_up_one()
    assert len(house.inference[0].requests) == loop_module.MAX_FAULTS
    assert reasons(house.streams) == ["out of attempts, the last: POST"]


async def test_starts_without_a_server_cost_a_position_nothing(house: House) -> None:
    house.inference[0].delay_s = 60
    feed(house.streams, 3)
    async with house.running():
        await eventually(lambda: house.inference[0].working == 3)
        house.inference[0].ready = False
        await asyncio.sleep(0.3)
    house.inference[0].delay_s = 0
    for _ in range(loop_module.MAX_FAULTS + 1):
        async with house.running():
            await eventually(lambda: house.streams.positions.pending() == 3)
            await asyncio.sleep(0.15)
    house.inference[0].ready = True
    await house.makes(3)
    assert house.streams.counts().dead == {}


@pytest.mark.parametrize(("version", "episode"), [(0, ""), (3, AGAINST_A_VERSION), (4, AGAINST_A_VERSION)])
async def test_a_server_that_goes_away_costs_a_position_nothing(
    house: House, version: int, episode: str
) -> None:
    inference = house.inference[0]
    inference.version, inference.fails_and_leaves = version, True
    house.streams.positions.add([replace(numbered_position(0), episode=episode)], cursor=0)
    async with house.running() as loop:
        for number in range(1, 2 * loop_module.MAX_FAULTS):
            await eventually(
                lambda number=number: len(inference.requests) == number and not loop._in_flight.running
            )
            inference.ready = True
        inference.fails_and_leaves = False
        await house.generated(1)
    assert house.streams.counts().dead == {}


async def test_faults_of_earlier_lives_count(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.inference.rollouts.admission.PAUSES_S", (60.0,))
    house.inference[0].failures = 1000
    feed(house.streams, 1)
    for life in range(1, loop_module.MAX_FAULTS):
        async with house.running():
            await eventually(lambda life=life: len(house.inference[0].requests) == life)
        assert house.streams.counts().dead == {}
    await house.gives_up_one()


async def test_a_refusal_is_dead_lettered_at_once(house: House) -> None:
    house.inference[0].refuses = True
    feed(house.streams, 1)
    await house.gives_up_one()
    assert len(house.inference[0].requests) == 1


@pytest.mark.parametrize("episode", ["", "game"])
async def test_a_broken_fen_is_dead_lettered_and_named(house: House, episode: str) -> None:
    entry = replace(numbered_position(0, "not a board"), episode=episode)
    house.streams.positions.add([entry], cursor=0)
    await house.gives_up_one()
    assert "not a board" in dead(house.streams)[0]["reason"]


async def test_what_cannot_be_scored_never_becomes_a_reward(house: House) -> None:
    house.reward.go_blind()
    feed(house.streams, 1)
    await house.gives_up_one()
    assert house.streams.counts().generated == 0
    assert "nan" in dead(house.streams)[0]["reason"]


async def test_a_group_judged_by_two_reward_versions_is_made_again(house: House) -> None:
    house.reward.versions = ("nodes-1000/stockfish-15.1", "nodes-1000/stockfish-17")
    feed(house.streams, 1)
    async with house.running():
        await eventually(lambda: house.inference[0].requests)
        house.reward.versions = ("nodes-1000/stockfish-17",)
        await house.generated(1)
    assert [g.reward_versions for g in groups(house.streams)] == [("nodes-1000/stockfish-17",)]
    house.reward.versions = ("test-1", "test-2")
    feed(house.streams, 1)
    await house.gives_up_one()
    assert "one group judged by several versions: test-1, test-2" in dead(house.streams)[0]["reason"]


async def test_another_reward_version_than_the_run_s_is_refused_until_accepted(house: House) -> None:
    feed(house.streams, 1)
    await house.makes(1)
    house.reward.versions = ("test-2",)
    feed(house.streams, 2)
    said = "'test-1' so far.*has 'test-2': .*--accept-reward-version test-2 .*accept_reward_version=test-2"
    with pytest.raises(SetupError, match=said):
        async with house.running():
            await eventually(lambda: len(house.inference[0].requests) > 1 + loop_module.MAX_FAILURES_IN_A_ROW)
            await asyncio.sleep(0.5)
    assert (house.streams.counts().generated, house.streams.counts().dead) == (1, {})
    assert house.streams.positions.length() == 2
    await house.makes(3, accept="test-2")
    house.reward.versions = ("test-1",)
    house.inference[0].requests.clear()
    feed(house.streams, 1)
    with pytest.raises(SetupError, match="reward version 'test-2' so far"):
        async with house.running(accept="test-2"):
            await eventually(lambda: len(house.inference[0].requests) > loop_module.MAX_FAILURES_IN_A_ROW)
            await asyncio.sleep(0.5)


async def test_one_replica_with_another_reward_version_costs_time_alone(house: House) -> None:
    feed(house.streams, 1)
    async with house.running():
        await house.generated(1)
        house.reward.versions = ("test-2",)
        await asyncio.to_thread(feed, house.streams, 1)
        await eventually(lambda: len(house.inference[0].requests) == 1 + loop_module.MAX_FAILURES_IN_A_ROW)
        house.reward.versions = ("test-1",)
        await house.generated(2)
    assert house.streams.counts().dead == {}


async def test_a_refusal_by_the_reward_service_is_dead_lettered_at_once(house: House) -> None:
    house.reward.problem_status = 422
    feed(house.streams, 1)
    await house.gives_up_one()
    assert len(house.inference[0].requests) == 1


@pytest.mark.parametrize("peer", ["inference", "reward"])
async def test_a_token_that_a_peer_refuses_ends_the_process_and_costs_no_position(
    house: House, peer: str
) -> None:
    demanding = house.reward if peer == "reward" else house.inference[0]
    demanding.wants_token = True
    feed(house.streams, 2)
    with pytest.raises(SetupError, match="needs the token"):
        async with house.running() as loop:
            await eventually(lambda: loop._failure)
    assert (house.streams.counts().dead, house.streams.positions.length()) == ({}, 2)
    demanding.wants_token = False
    await house.makes(2)


async def test_while_a_peer_is_away_no_chance_is_spent(house: House) -> None:
    house.inference[0].ready = False
    feed(house.streams, 2)
    async with house.running():
        await asyncio.sleep(0.5)
        assert house.streams.positions.pending() == 0
        house.inference[0].ready = True
        await house.generated(2)


async def test_nothing_but_dead_letters_stops_the_process(house: House) -> None:
    house.inference[0].refuses, house.staleness = True, 9
    feed(house.streams, 3 * loop_module.MAX_FAILURES_IN_A_ROW)
    with pytest.raises(
        RookeryError, match=f"{loop_module.MAX_FAILURES_IN_A_ROW} dead letters in a row.*too large"
    ):
        async with house.running():
            await eventually(
                lambda: house.streams.counts().dead.get("positions", 0) == loop_module.MAX_FAILURES_IN_A_ROW
            )
            await asyncio.sleep(0.5)
    assert house.streams.positions.length() == 2 * loop_module.MAX_FAILURES_IN_A_ROW, (
        "the others wait for a better set-up"
    )


async def test_a_drain_abandons_without_losing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "DRAIN_S", 0.1)
    house.inference[0].delay_s = 60
    feed(house.streams, 3)
    async with house.running():
        await eventually(lambda: house.inference[0].working == 3)
    assert house.streams.positions.pending() == 3
    house.inference[0].delay_s = 0
    await house.makes(3)
    assert len({g.id for g in groups(house.streams)}) == 3


async def test_what_a_dead_consumer_held_is_taken_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "IDLE_S", 0.2)
    monkeypatch.setattr(loop_module, "KEEP_ALIVE_S", 0.1)
    feed(house.streams, 2)
    house.streams.positions.read(consumer="gone", count=2, block_s=0.01)
    house.streams.positions.read(consumer="gone", count=2, block_s=0.01)
    assert house.streams.positions.pending() == 2
    await house.makes(2)


async def test_work_in_progress_is_not_taken_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "IDLE_S", 1.0)
    monkeypatch.setattr(loop_module, "KEEP_ALIVE_S", 0.1)
    house.inference[0].delay_s = 2.5
    feed(house.streams, 2)
    async with house.running(consumer="a"):
        await eventually(lambda: house.inference[0].working == 2)
        await house.makes(2, consumer="b")
    assert len(house.inference[0].requests) == 2


async def test_work_is_spread_over_the_servers_of_the_newest_version(house: House) -> None:
    house.staleness, house.inference[0].delay_s = 9, 0.1
    second, behind = Inference(delay_s=0.1), Inference(delay_s=0.1)
    house.inference[0].version = second.version = 1
    async with contextlib.AsyncExitStack() as stack:
        for server in (second, behind):
            house.urls.append(await stack.enter_async_context(serve_http(server.app())))
        async with house.running() as loop:
            peers = loop._peers
            await eventually(lambda: len(peers.servers) == 3 and all(peer.adapter for peer in peers.servers))
            await asyncio.to_thread(feed, house.streams, 8)
            await house.generated(8)
    assert (len(house.inference[0].requests), len(second.requests), len(behind.requests)) == (4, 4, 0)


def dead(streams: RunStreams) -> list[dict[str, str]]:
    rows = streams.redis.client.xrange(streams.redis.key("dead"))
    return [{k.decode(): v.decode() for k, v in fields.items() if k != b"data"} for _, fields in rows]


def reasons(streams: RunStreams) -> list[str]:
    return [" ".join(row["reason"].split()[:6]) for row in dead(streams)]


async def test_replicas_come_and_go(house: House, hosts: dict[str, list[str]]) -> None:
    first, second = house.inference[0], Inference(version=1)
    port = int(house.urls[0].rpartition(":")[2])
    house.urls, house.staleness = [f"dns:///inference.test:{port}"], 9
    hosts["inference.test"] = ["127.0.0.1"]
    first.version = 2

    async def makes(count: int) -> None:
        feed(house.streams, 4)
        await house.generated(count)

    async with serve_http(second.app(), host="127.0.0.2", port=port), house.running() as loop:
        await makes(4)
        hosts["inference.test"] = ["127.0.0.1", "127.0.0.2"]
        await eventually(lambda: len(loop._peers.servers) == 2 and loop._peers.servers[1].adapter)
        first.delay_s = second.delay_s = 0.05  # so that groups overlap, and the least busy server matters
        await makes(8)
        assert second.requests == [], "it serves an older version than the other"
        second.version = 2
        await eventually(lambda: loop._peers.servers[1].adapter.version.number == 2)
        await makes(12)
        assert second.requests
        hosts["inference.test"] = ["127.0.0.2"]
        await eventually(lambda: len(loop._peers.servers) == 1)
        told = len(first.requests)
        await makes(16)
        assert len(first.requests) == told
        hosts["inference.test"] = []  # the DNS is out: whoever was there stays
        await makes(20)


async def test_a_version_that_plays_stays_leased_while_no_game_asks_for_a_move(
    house: House, redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the tasks of the process."""
    monkeypatch.setattr("services.inference.rollouts.opponents.LEASE_S", 0.3)
    inference = house.inference[0]
    inference.version = 4
    entry = replace(numbered_position(0), episode=AGAINST_A_VERSION)
    house.streams.positions.add([entry], cursor=0)
    settings = RolloutsSettings(
        run="test",
        redis_url=redis_url,
        group_size=GROUP_SIZE,
        inference_urls=house.urls[0],
        reward_target=house.reward_target,
    )

    async def served(service: serving.Service) -> None:
        async with asyncio.TaskGroup() as tasks:
            for task in service.background:
                tasks.create_task(task(service.stopping))
            await house.generated(1)
            asked, leases = len(inference.requests), len(inference.leased)
            await eventually(lambda: len(inference.leased) >= leases + 3)
            assert inference.leased == [3] * len(inference.leased)
            inference.version = 7
            await eventually(lambda: inference.leased[-1] == 6)
            assert len(inference.requests) == asked
            service.stopping.set()
        await service.on_stop()

    monkeypatch.setattr(serving, "serve", served)
    await run(settings)
    assert caplog.text.count("of the 2 games of a group, one colour has no two") == 1


@pytest.mark.parametrize(
    ("rewrites", "spec", "calls"),
    [
        (False, "tools,price=0.25", ("<tool>legal_moves</tool>", "<tool>none</tool>")),
        (True, "tools,price=0.25", ("<tool>legal_moves</tool>", "<tool>none</tool>")),
        (
            False,
            "tools,price=0.25,calls=template",
            ('{"name": "legal_moves", "arguments": {}}', '{"name": "none", "arguments": {}}'),
        ),
    ],
)
async def test_the_turns_of_an_episode_go_on_from_each_other(
    house: House, rewrites: bool, spec: str, calls: tuple[str, str]
) -> None:
    """By the newest version; if the template rewrites what was said, each turn has a prompt of its own."""
    inference = house.inference[0]
    inference.texts = (*calls, "\\boxed{e2e4}")
    inference.rewrites, inference.delay_s = rewrites, 0.2
    entry = replace(numbered_position(0), episode=spec)
    house.streams.positions.add([entry], cursor=0)
    async with house.running():
        await eventually(lambda: len(inference.requests) > 0)
        inference.version = 1
        await house.generated(1)
    (group,) = groups(house.streams)
    assert (group.policy.number, group.position.episode) == (0, spec)
    assert bool(group.prompt.tools) == ("template" in spec)
    assert group.rewards == (-0.25 - 0.5,) * GROUP_SIZE
    for trace in group.traces:
        first, second, _ = trace.turns
        assert [bool(turn.verdict) for turn in trace.turns] == [False, False, True]
        assert first.observation.startswith("Legal moves: Na3 ")
        assert second.observation.startswith("No tool 'none'")
        assert [turn.policy and turn.policy.number for turn in trace.turns] == [None, 1, 1]
        assert [turn.continues for turn in trace.turns] == [False, not rewrites, not rewrites]
        assert first.prompt is None
        assert second.prompt is not None
        messages = [message.content for message in second.prompt.messages]
        assert messages[-1:] == [first.observation]
        assert second.prompt.tools == ""
        assert len(messages) == (3 if rewrites else 1)
        assert second.prompt_token_ids == ((1, 2, 9) if rewrites else (3, 4))
    assert len({turn.completion.seed for turn in group.turns}) == 3 * GROUP_SIZE


@pytest.mark.parametrize("context", [16, 18], ids=["no prompt", "a part of the answer"])
async def test_an_episode_ends_when_the_next_turn_does_not_fit(house: House, context: int) -> None:
    """What it has made so far is kept, and a call as its last turn is judged as an answer that was cut."""
    inference, cut = house.inference[0], ROLLOUT_EPISODES.labels("context_limit")
    inference.texts, inference.context = ("<tool>board</tool>",), context
    before = cut._value.get()
    entry = replace(numbered_position(0), episode="tools,turns=9")
    house.streams.positions.add([entry], cursor=0)
    await house.makes(1)
    (group,) = groups(house.streams)
    assert cut._value.get() - before == GROUP_SIZE
    for trace in group.traces:
        *calls, last = trace.turns
        assert [turn.completion.finish_reason for turn in calls] == ["stop"] * 2
        assert all(turn.verdict is None for turn in calls)
        assert last.completion.truncated
        assert trace.verdict.reward == -0.25
        assert last.observation.endswith(": context limit")
    assert house.reward.truncated == {True}
    assert house.streams.counts().dead == {}


async def test_a_first_prompt_that_does_not_fit_is_refused_with_the_sizes(house: House) -> None:
    house.inference[0].context = 1
    house.streams.positions.add([replace(numbered_position(0), episode="tools")], cursor=0)
    await house.gives_up_one()
    assert "maximum context length is 1 tokens" in dead(house.streams)[0]["reason"]


async def test_short_answers_are_made_while_long_games_go_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within a bound that the games fill; and no more games than a batch of them begin."""
    monkeypatch.setattr(loop_module, "DRAIN_S", 0.1)
    inference = house.inference[0]
    inference.texts, inference.later_delay_s = ("<tool>board</tool>",), 60.0
    long = [replace(numbered_position(n), episode="tools") for n in range(BATCH_GROUPS)]
    house.streams.positions.add(long, cursor=0)
    async with house.running() as loop:
        await eventually(lambda: loop._generator.playing.groups == BATCH_GROUPS)
        assert loop._generator.playing.load == pytest.approx(BATCH_GROUPS * (2 + 3 + 64) / (2 + 64), rel=0.1)
        await asyncio.to_thread(feed, house.streams, BATCH_GROUPS)
        await house.generated(BATCH_GROUPS)
        assert loop._generator.playing.groups == BATCH_GROUPS
        await asyncio.to_thread(feed, house.streams, 1)
        await asyncio.sleep(0.5)
        assert house.streams.counts().generated == BATCH_GROUPS, "the bound holds"
    assert loop._generator.playing == Playing()
