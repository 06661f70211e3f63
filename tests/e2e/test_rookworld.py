"""A demo of RookWorld's two tasks with a GPT-2 of which every weight learns, real in every part."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chess
import httpx
import pytest

from rookery import rookworld, rookworld_env
from rookery.trace import Outcome, TraceGroup
from tests.conftest import A_WHOLE_RUN, RedisServer, free_port
from tests.e2e.watching import copied_groups, logs, started
from tests.gpt2 import END, teach, write_rookworld_model
from tests.waiting import until

pytestmark = [*A_WHOLE_RUN, pytest.mark.timeout(900)]

STEPS = 4
GROUPS, GROUP_SIZE = 8, 4
POLICY_TOKENS, STATE_TOKENS = 72, 48
POOL = 24
EVALUATED = 12
FIRST, LAST = "policy-v000000", f"policy-v{STEPS:06d}"


@dataclass
class Seen:
    """A demo that came to its end, and the groups that went through its `traces` stream."""

    run_dir: Path
    status: int
    groups: list[TraceGroup]
    served: list[int] = field(default_factory=list)
    """The version of `/policy` before and after `models` were asked for: the next may come in between."""
    models: set[str] = field(default_factory=set)

    @property
    def metrics(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]

    def of(self, task: str) -> list[TraceGroup]:
        found = [group for group in self.groups if group.position.task == task]
        assert found, f"no group of task {task}"
        return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("rookworld")
    model = teach(write_rookworld_model(folder / "tiny-gpt2"), steps=200)
    server = RedisServer(folder)
    port = free_port()
    flags = [
        "--run", "rw", "--runs-dir", folder, "--preset", "rookworld-full", "--steps", STEPS, "--minutes", 60,
        "--eval-positions", EVALUATED, "--eval-samples", 2, "--redis-url", server.url, "--task", "rookworld",
        "--model", model, "--nodes", 200, "--batch-groups", GROUPS, "--group-size", GROUP_SIZE,
        "--max-tokens", POLICY_TOKENS, "--source", "generated", "--max-positions", POOL,
    ]  # fmt: skip
    for setting in (
        f"inference.port={port}", "feed.state_share=0.4", f"rollouts.state_max_tokens={STATE_TOKENS}",
        "trainer.lora_rank=0", "trainer.keep=100000", "trainer.kl=forward", "trainer.kl_schedule=adaptive",
        "trainer.lr=1e-4",
    ):  # fmt: skip
        flags += ["--set", setting]
    log, metrics, url = folder / "up.log", folder / "rw" / "metrics.jsonl", f"http://127.0.0.1:{port}"
    with server, started("demo", *flags, log=log) as process, copied_groups(server.url, "rw") as groups:
        run = Seen(folder / "rw", 0, groups)
        until(
            lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= STEPS - 1,
            within_s=600, every_s=0.2, of=process, log=lambda: logs(folder),
        )  # fmt: skip
        run.served.append(httpx.get(f"{url}/policy").json()["version"])
        run.models = {card["id"] for card in httpx.get(f"{url}/v1/models").json()["data"]}
        run.served.append(httpx.get(f"{url}/policy").json()["version"])
        run.status = process.wait(600)
        yield run


def test_generated_positions_come_from_a_fixed_pool(seen: Seen) -> None:
    drawn = [group.position for group in seen.groups]
    assert all(position.id.startswith("generated:0:") for position in drawn)
    assert len(seen.groups) > POOL >= len(set(drawn)), "each with its task, its move and its history"
    kept = json.loads((seen.run_dir / "settings.json").read_text())
    assert (kept["source"], kept["max_positions"]) == ("generated", POOL)


def test_both_tasks_are_asked_as_raw_text(seen: Seen) -> None:
    for group in seen.of("P"):
        assert group.prompt.messages[0].content == rookworld.policy_prompt(group.position.fen)
        assert (group.position.move, group.sampling.max_tokens) == ("", POLICY_TOKENS)
    for group in seen.of("A"):
        fen, move, recent = rookworld.parse_state_prompt(group.prompt.messages[0].content)
        assert (fen, move, recent[-1]) == (group.position.fen, group.position.move, group.position.move)
        assert group.sampling.max_tokens == STATE_TOKENS


def test_each_is_judged_by_its_own_task(seen: Seen) -> None:
    for group in seen.groups:
        assert len(group.traces) == GROUP_SIZE
        for trace in group.traces:
            verdict = trace.verdict
            assert verdict.reward_version.startswith("graded-")
            assert verdict.reward in (-0.3, 0.2, 0.4, 0.6, 0.8, 1.0)
    rewards = [trace.verdict.reward for group in seen.of("P") for trace in group.traces]
    assert len(set(rewards)) > 1, "the taught model writes the form now and then"


def test_the_truth_is_the_boards(seen: Seen) -> None:
    """No label travels with a question: what an answer is worth follows from the rules alone."""
    for group in seen.of("A"):
        truth = rookworld_env.step(group.position.fen, group.position.move).answer
        for trace in group.traces:
            answer = rookworld.read_state_answer(trace.completion.text)
            right = answer is not None and answer.next_fen == truth.next_fen
            assert (trace.verdict.reward >= 0.4) <= right
            assert (trace.verdict.outcome is Outcome.UNPARSABLE) == (answer is None)
    for group in seen.of("P"):
        for trace in group.traces:
            found = rookworld.read_policy_answer(trace.completion.text)
            legal = (
                found is not None
                and chess.Move.from_uci(found.best) in chess.Board(group.position.fen).legal_moves
            )
            assert (trace.verdict.outcome is Outcome.LEGAL) == legal
            assert (trace.verdict.regret is not None) == legal


def test_the_end_of_text_is_a_token_and_no_part_of_the_answer(seen: Seen) -> None:
    ended = [t for group in seen.groups for t in group.traces if t.completion.finish_reason == "stop"]
    assert ended
    vocabulary = json.loads((seen.run_dir.parent / "tiny-gpt2" / "tokenizer.json").read_text())
    [end] = [token["id"] for token in vocabulary["added_tokens"] if token["content"] == END]
    assert all(trace.completion.token_ids[-1] == end for trace in ended)
    assert not any(END in trace.completion.text for trace in ended)
    assert any(trace.verdict.outcome is Outcome.LEGAL for trace in ended)


def test_steps_train_on_both_tasks_and_versions_advance(seen: Seen) -> None:
    rows = seen.metrics[:STEPS]
    assert [row["version"] for row in rows] == list(range(1, STEPS + 1))
    for row in rows:
        assert row.get("groups_p", 0) + row.get("groups_a", 0) == row["groups"] == GROUPS
        assert row["kl_reference"] >= 0
    assert sum(row.get("groups_a", 0) for row in rows) > 0
    assert sum(row["grad_norm"] > 0 for row in rows) == STEPS
    assert rows[-1]["reward_best"] == max(row["reward"] for row in rows)
    log = (seen.run_dir / "logs" / "trainer.log").read_text()
    assert "(best " in log
    assert " P/A " in log


def test_whole_versions_are_served_one_at_a_time(seen: Seen) -> None:
    assert seen.status == 0, (seen.run_dir.parent / "up.log").read_text()[-3000:]
    before, after = seen.served
    [other] = seen.models - {"policy"}
    assert 1 <= before <= int(other.removeprefix("policy-v")) <= after
    assert len({group.policy.number for group in seen.groups}) >= 2
    hashes = {group.policy.number: group.policy.sha256 for group in seen.groups}
    assert len(set(hashes.values())) == len(hashes), "every step moved the weights"


def test_each_group_has_the_log_probabilities_of_the_version_it_names(seen: Seen) -> None:
    import torch

    from rookery.config.trainer import TrainerSettings
    from services.trainer.batches.micro_batches import collate
    from services.trainer.batches.rows import make_rows
    from services.trainer.gpt2 import loader
    from services.trainer.model.policies import Gpt2Policy

    base = seen.run_dir.parent / "tiny-gpt2"
    policy = Gpt2Policy(TrainerSettings(model=base, run_dir=seen.run_dir, device="cpu", lora_rank=0))
    adapters = seen.run_dir / "adapters"
    for group in seen.groups[: STEPS * GROUPS]:
        loader.load_weights(policy.model, adapters / group.policy.name)
        made = make_rows([group], [[0.0] * GROUP_SIZE], version=0, mask_truncated=False, row_tokens=4096)
        batch = collate(made)
        with torch.no_grad():
            difference = (policy.score(batch).logprobs_N - batch.behaviour_N).abs()
        assert difference.mean() < 1e-5, group.id
        assert difference.max() < 5e-5, group.id
    assert seen.metrics[0]["mismatch_max"] < 5e-5


def test_both_versions_are_evaluated_on_both_kinds_of_lines(seen: Seen) -> None:
    """One version is served at a time: the second is asked when the first is gone."""
    report = json.loads((seen.run_dir / "report.json").read_text())
    assert list(report["players"]) == [FIRST, LAST]
    positions = report["sections"]["positions"]
    for table in ("P_lines", "A_lines"):
        assert set(positions[table]["format"]) == {FIRST, LAST, "well-formed guess"}
        assert positions[table]["format"]["well-formed guess"]["mean"] == 1.0
        assert positions[table]["format"][FIRST]["mean"] > 0, "the taught model writes the form now and then"
    assert set(positions["A_lines"]) == {"format", "fen", "reward", "terminated", "truncated", "grade"}
    assert set(positions["P_lines"]) == {"format", "best", "candidates", "evaluations", "grade"}
    asked = [json.loads(line) for line in (seen.run_dir / "answers.jsonl").read_text().splitlines()]
    texts = {
        name: sorted(answer["text"] for line in asked if line["player"] == name for answer in line["answers"])
        for name in (FIRST, LAST)
    }
    # greedy, sampled, mirrored, A:
    assert len(texts[FIRST]) == len(texts[LAST]) == EVALUATED * (1 + 2 + 1 + 1)
    assert texts[FIRST] != texts[LAST], "each was asked while its own weights were served"
