"""The trainer against a real Redis: exactly once, whatever is killed; the same bytes as never stopping."""

import asyncio
import contextlib
import json
import math
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from rookery import failpoints
from rookery.errors import Conflict, InvalidInput, SetupError, Unavailable
from rookery.trace import PolicyVersion, TraceGroup
from services.inference.rollouts.admission import Admission, Lead, RunCounts
from services.trainer import loop, merge, process, push
from services.trainer.batches.intake import Intake
from services.trainer.merge import MergeSettings
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.push import PushSettings
from services.trainer.tiny import build_tiny
from services.trainer.training import attempts
from services.trainer.versions import commits
from services.trainer.versions.publisher import Publisher
from services.viewer.runs import RunFolder
from tests.builders import changed
from tests.conftest import RedisServer
from tests.failing import armed
from tests.hub import hub_server
from tests.integration.trainer.runs import BATCH, Run, events
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group
from tests.waiting import until

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"), seed=3, layers=2)


@pytest.fixture
def event_loop_thread() -> Iterator[asyncio.AbstractEventLoop]:
    with events() as running:
        yield running


@pytest.fixture
def run(redis_url: str, tmp_path: Path, model: Path, event_loop_thread: asyncio.AbstractEventLoop) -> Run:
    return Run(redis_url, "one", tmp_path / "one", model, event_loop_thread)


@pytest.fixture(scope="module")
def undisturbed(_shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory, model: Path) -> bytes:
    """The adapter of three steps of a trainer that nothing has stopped."""
    with events() as running:
        run = Run(_shared_redis.url, "undisturbed", tmp_path_factory.mktemp("undisturbed"), model, running)
        run.add(_groups(3 * BATCH))
        run.train(3)
    return run.adapter(3)


def _groups(count: int, *, first: int = 0) -> list[TraceGroup]:
    return [make_group(first + i, vocabulary=90) for i in range(count)]


def test_versions_advance_and_every_group_is_settled(run: Run) -> None:
    run.add(_groups(2 * BATCH))
    run.train(2)
    assert run.streams.counts().trained == 2 * BATCH
    assert run.streams.groups.length() == 0
    policy = run.streams.policy.read()
    assert policy is not None
    assert policy.version.number == 2
    assert Path(policy.path).is_dir()
    assert run.adapter(0) != run.adapter(2)
    kept = RunFolder("run", run.folder, run.folder)
    for id, version in kept.trained().items():
        assert all(any(own) for own in kept.token_figures(version, id, answers=4).values())
    assert len(kept.trained()) == 2 * BATCH
    assert run.accounted()


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"objective": "ppo", "ppo_epochs": 2, "ppo_mini_batches": 2, "kl": "k1"},
        {"base_bits": 8, "adam_bits": 8},
    ],
    ids=["grpo", "ppo", "8 bits"],
)
def test_stopping_and_resuming_gives_the_bytes_of_not_stopping(changed: dict[str, Any], run: Run) -> None:
    if "base_bits" in changed:
        pytest.importorskip("bitsandbytes")
    other = run.twin()
    for each in (run, other):
        each.add(_groups(4 * BATCH))
    run.train(4, **changed)
    other.train(2, **changed)
    other.train(4, **changed)
    assert other.adapter(4) == run.adapter(4)


GPT2 = [
    {"lora_rank": 0, "kl": "policy_reference", "kl_schedule": "adaptive", "kl_target": 1e-6},
    {"lora_rank": 0, "objective": "ppo", "ppo_epochs": 2, "ppo_mini_batches": 2},
    {"lora_rank": 4, "lora_targets": "c_attn,c_proj,c_fc", "kl": "k3"},
]


@pytest.mark.parametrize("changed", GPT2, ids=["all weights", "all weights, ppo", "merged"])
def test_so_does_a_gpt2(changed: dict[str, Any], run: Run, tmp_path: Path) -> None:
    run.model = write_gpt2(tmp_path / "gpt2", vocab_size=100)
    other = run.twin()
    for each in (run, other):
        each.add(_groups(4 * BATCH))
    run.train(4, **changed)
    for steps in (1, 2, 4):
        other.train(steps, **changed)
    files = {path.name for path in run.version(4).iterdir()} - {"state.json", "SHA256SUMS"}
    assert {"model.safetensors", "optimizer.safetensors"} <= files
    assert ("value_head.safetensors" in files) == ("objective" in changed)
    for name in files:
        assert (other.version(4) / name).read_bytes() == (run.version(4) / name).read_bytes(), name
    first, last = (load_file(run.version(number) / "model.safetensors") for number in (0, 4))
    moved = [name for name in first if not torch.equal(first[name], last[name])]
    assert len(moved) == (len(first) if changed["lora_rank"] == 0 else 2 * 4)


def test_what_is_committed_of_an_adapter_over_a_gpt2_is_the_policy(run: Run, tmp_path: Path) -> None:
    """What vLLM serves, as transformers loads it, is what the trainer computes with."""
    from transformers import GPT2LMHeadModel

    run.model = write_gpt2(tmp_path / "gpt2", vocab_size=100)
    run.add(_groups(3 * BATCH))
    settings: dict[str, Any] = {"lora_rank": 4, "lora_targets": "c_attn,c_proj,c_fc", "lr": 0.03}
    run.train(3, **settings)
    policy = build_policy(run.settings(3, **settings))
    policy.load_version(run.version(3))
    ids = torch.randint(0, 100, (4, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = policy.model(input_ids=ids).logits
        theirs = GPT2LMHeadModel.from_pretrained(run.version(3)).eval()(ids).logits
        base = GPT2LMHeadModel.from_pretrained(run.model).eval()(ids).logits
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4)
    assert (ours - base).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["adapter", "whole model"])
def test_a_version_becomes_a_model_of_its_own(kind: str, run: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    changed: dict[str, Any] = {"lora_rank": 4, "lr": 0.03}
    if kind == "whole model":
        run.model = write_gpt2(tmp_path / "gpt2", vocab_size=100)
        changed["lora_targets"] = "c_attn,c_proj,c_fc"
    run.add(_groups(2 * BATCH))
    run.train(2, **changed)
    wanted = {"run": f"run:{run.folder}@1", "save_dtype": "float32", "style": "mover-twice"}
    merge.run(MergeSettings(out=tmp_path / "merged", **wanted))
    policy = build_policy(run.settings(2, **changed))
    policy.load_version(run.version(1))
    ids = torch.randint(0, 80, (4, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        base, merged = (
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(input_ids=ids).logits
            for folder in (run.model, tmp_path / "merged")
        )
        torch.testing.assert_close(merged, policy.model(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
    assert (merged - base).abs().max() > 0.01
    tokenizer = {path.name for path in run.model.glob("*tok*")}
    assert tokenizer <= {path.name for path in (tmp_path / "merged").iterdir()}
    with pytest.raises(SetupError, match="merged exists"):
        merge.run(MergeSettings(out=tmp_path / "merged", **wanted))


def test_a_version_is_uploaded_with_its_card(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run.add(_groups(2 * BATCH))
    run.train(2, lora_rank=4)
    (run.folder / "settings.json").write_text('{"style": "mover-pieces"}')
    rate = {"policy": {"mean": 0.9512, "ci95": [0.93, 0.97]}, "random": {"mean": 1.0, "ci95": [0.99, 1.0]}}
    (tmp_path / "report.json").write_text(
        json.dumps({"sections": {"positions": {"metrics": {"legal_rate": rate, "claims": {}}}}})
    )
    wanted: dict[str, Any] = {
        "run": f"{run.folder}@2",
        "repo": "me/chess",
        "report": tmp_path / "report.json",
    }
    push.run(PushSettings(**wanted, dry_run=True))
    card = capfd.readouterr().out
    assert "| legal rate | 0.951 [0.93, 0.97] | 1 [0.99, 1] |" in card
    with hub_server() as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "wrong")
        with pytest.raises(SetupError, match=r"me/chess: .*401"):
            push.run(PushSettings(**wanted))
        assert not hub.files
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        push.run(PushSettings(**wanted))
    merge.run(MergeSettings(run=wanted["run"], out=tmp_path / "merged"))
    merged = {path.name: path.read_bytes() for path in (tmp_path / "merged").iterdir()}
    assert hub.files == {**merged, "README.md": card.encode()}
    assert hub.tokens == {"Bearer wrong", "Bearer hf_secret"}


def test_a_merged_model_says_what_it_was_made_from(run: Run, tmp_path: Path) -> None:
    run.model = build_tiny(tmp_path / "tiny", seed=3, layers=2)
    run.add(_groups(2 * BATCH))
    run.train(2, lora_rank=4)
    (run.folder / "settings.json").write_text('{"style": "mover-pieces"}')
    moved = run.model.rename(tmp_path / "moved")
    wanted: dict[str, Any] = {"out": tmp_path / "new" / "merged", "run": str(run.folder)}
    with pytest.raises(SetupError, match=r"policy-v000002: .*tiny.*--base says where it is"):
        merge.run(MergeSettings(**wanted))
    other = build_tiny(tmp_path / "other", seed=4, layers=2)
    with pytest.raises(InvalidInput, match=r"other has the weights sha256:.*was trained on sha256:"):
        merge.run(MergeSettings(**wanted, base=str(other)))
    (tmp_path / "file").touch()
    with pytest.raises(ValidationError, match="/file' is not a folder"):
        MergeSettings(run=str(run.folder), out=tmp_path / "file" / "merged", base=str(moved))
    assert not wanted["out"].parent.exists()
    merge.run(MergeSettings(**wanted, base=str(moved)))
    assert [path.name for path in wanted["out"].parent.iterdir()] == ["merged"]
    weights = wanted["out"] / "model.safetensors"
    assert weights.stat().st_mode == (run.folder / "settings.json").stat().st_mode
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.float32}, "as the base's"
    manifest = json.loads((wanted["out"] / "data_manifest.json").read_text())
    state = json.loads(run.state(2))
    assert manifest.pop("made_with").keys() == {"rookery", "peft", "torch", "transformers"}
    assert manifest.pop("trained")["lora_rank"] == "4"
    base = state["fingerprint"]["model"].replace(str(tmp_path), "").strip("/")
    assert manifest == {
        "style": "mover-pieces", "base": base, "run": "one", "version": 2, "version_sha256": state["sha256"]
    }  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"baseline": "ema", "kl": "policy_reference", "kl_schedule": "adaptive", "kl_target": 1e-6},
        {"baseline": "adaptive", "kl": "k3", "kl_schedule": "smooth", "objective": "gspo"},
        {"baseline": "leave-one-out", "kl": "k1", "kl_schedule": "warmup", "objective": "cispo"},
    ],
    ids=lambda changed: changed["kl_schedule"],
)
def test_what_learning_remembers_is_in_the_commit(changed: dict[str, Any], run: Run) -> None:
    other = run.twin()
    for each in (run, other):
        each.add(_groups(3 * BATCH))
    run.train(3, **changed)
    for steps in (1, 2, 3):
        other.train(steps, **changed)
    assert other.adapter(3) == run.adapter(3)
    states = [json.loads(r.state(3)) for r in (run, other)]
    assert states[0]["learner"] == states[1]["learner"]
    if changed["kl_schedule"] != "warmup":
        assert states[0]["learner"]["kl_coefficient"]["now"] != 0.02
        assert states[0]["learner"]["averages"] is not None


def test_dynamic_sampling_drops_groups_of_equal_rewards_up_to_its_limit(run: Run) -> None:
    plain = _groups(3 * BATCH, first=10)
    plain[0] = _with_equal_returns(plain[0])  # whose turns differ, so that there is something to learn
    equal = [_with_equal_rewards(group) for group in _groups(3 * BATCH, first=40)]
    run.add([*equal[:2], *plain[:BATCH], *equal[2:], *plain[BATCH:]])
    run.train(1, dynamic_sampling=True, dynamic_sampling_limit=1)
    assert run.streams.counts().dropped == {"zero_variance": 2}
    run.train(2, dynamic_sampling=True, dynamic_sampling_limit=1)
    assert run.streams.counts().dropped == {"zero_variance": 2 + BATCH}, "then what comes is trained on"
    assert run.streams.counts().trained == 2 * BATCH
    row = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["dropped_zero_variance"] == BATCH
    assert row["zero_variance_groups"] == BATCH
    assert row["zero_variance_share"] == 1.0
    assert run.accounted()


def test_a_kill_does_not_begin_the_count_of_dropped_groups_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _groups(2 * BATCH, first=10)
    equal = [_with_equal_rewards(group) for group in _groups(2 * BATCH, first=40)]
    undisturbed = run.twin()
    dynamic = {"dynamic_sampling": True, "dynamic_sampling_limit": 1}
    undisturbed.add([*equal, *plain])
    undisturbed.train(2, **dynamic)
    run.add(equal[: BATCH - 1])
    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_next_entry", _until_empty)
        run.train(2, **dynamic)
    assert run.streams.counts().dropped == {"zero_variance": BATCH - 1}
    run.add([*equal[BATCH - 1 :], *plain])
    run.train(2, **dynamic)
    assert run.streams.counts().dropped == {"zero_variance": BATCH}
    assert run.adapter(2) == undisturbed.adapter(2)
    rows = [json.loads((r.folder / "metrics.jsonl").read_text().splitlines()[0]) for r in (run, undisturbed)]
    for name in ("dropped_zero_variance", "zero_variance_share"):
        assert rows[0][name] == rows[1][name], name
    assert [json.loads(r.state(2))["dropped"] for r in (run, undisturbed)] == 2 * [
        {"stale": 0, "zero_variance": BATCH}
    ]


def _until_empty(intake: Intake, while_waiting: Callable[[], None]) -> Any:
    """What comes within a second; then the trainer is told to stop, as by a signal, amid a batch."""
    with contextlib.suppress(queue.Empty):
        return intake._ready.get(timeout=1.0)
    intake._stopping.set()
    return None


def _with_equal_returns(group: TraceGroup) -> TraceGroup:
    """Episodes of two turns, of which half are paid for the first one, and half for the second."""
    prompt = {"prompt": group.prompt, "prompt_token_ids": group.prompt_token_ids}
    traces = []
    for slot, trace in enumerate(group.traces):
        first, second = (
            replace(trace.turns[0], verdict=replace(trace.verdict, reward=float(slot % 2 == number)))
            for number in range(2)
        )
        traces.append(replace(trace, turns=(first, replace(second, **prompt))))
    return replace(group, traces=tuple(traces))


def _with_equal_rewards(group: TraceGroup) -> TraceGroup:
    traces = tuple(changed(t, verdict=replace(t.verdict, reward=-0.5)) for t in group.traces)
    return replace(group, traces=traces)


@pytest.mark.parametrize("place", [place for place in failpoints.PLACES if place[:6] in ("traine", "commit")])
def test_a_trainer_that_ends_anywhere_trains_on_each_group_once(
    place: str, run: Run, undisturbed: bytes
) -> None:
    """As if it had never ended. Nothing that is not committed was ever published."""
    run.add(_groups(3 * BATCH))
    with armed(f"{place}=error@2"), pytest.raises(OSError, match=f"failpoint {place}"):
        run.train(3)
    policy = run.streams.policy.read()
    assert policy is not None
    assert Path(policy.path).is_dir()
    run.train(3)
    assert run.streams.counts().trained == 3 * BATCH
    assert run.adapter(3) == undisturbed
    assert run.accounted()


def test_stale_groups_are_dropped_and_counted(run: Run) -> None:
    fresh = [replace(group, policy=replace(group.policy, number=9)) for group in _groups(BATCH, first=50)]
    run.add(_groups(BATCH) + fresh)
    with Reader(run) as reader:
        assert reader.batch(version=9) == [group.id for group in fresh]
        reader.acknowledge(reader.held, ledger=())
    assert run.streams.counts().dropped == {"stale": BATCH}
    assert run.accounted()


def test_a_group_of_a_version_that_was_never_committed_stops_the_trainer(run: Run) -> None:
    """As after a folder was brought back from before: its numbers must not be given twice."""
    group = make_group(1, version=3, vocabulary=90)
    run.add([group])
    said = r"group group-1 was sampled by policy-v000003, but the newest version here is 2"
    with Reader(run) as reader, pytest.raises(SetupError, match=said):
        reader.batch(version=2)
    assert run.streams.counts().dropped == {}


def test_a_fault_of_the_reading_thread_ends_the_wait(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise Unavailable("stopped while redis was unavailable")

    monkeypatch.setattr(run.streams.groups, "read", away)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with Reader(run) as reader, pytest.raises(Unavailable, match="while redis was unavailable"):
        reader.batch()


def test_poison_is_dead_lettered_and_the_rest_trained(run: Run) -> None:
    poison = make_group(99, vocabulary=90)
    broken = replace(poison.traces[0].completion, logprobs=())
    poison = replace(poison, traces=(changed(poison.traces[0], completion=broken), *poison.traces[1:]))
    run.add([poison, *_groups(BATCH)])
    run.train(1)
    assert run.streams.counts().dead == {"traces": 1}
    assert run.streams.counts().trained == BATCH
    assert run.streams.overview().dead == 1
    assert run.accounted()


@pytest.mark.parametrize("cut", [{"top_p": 0.95}, {"top_k": 20}, {"temperature": 0.0}], ids=str)
def test_groups_without_importance_ratios_are_dead_lettered(cut: dict[str, Any], run: Run) -> None:
    """Their log-probabilities are of another distribution than the trainer's."""
    group = make_group(99, vocabulary=90)
    run.add([replace(group, sampling=replace(group.sampling, **cut)), *_groups(BATCH)])
    with Reader(run) as reader:
        assert "group-99" not in reader.batch()
    assert run.streams.counts().dead == {"traces": 1}


def test_a_group_without_a_board_is_dead_lettered(run: Run) -> None:
    group = make_group(99, vocabulary=90)
    run.add([replace(group, prompt=replace(group.prompt, fen="no board")), *_groups(BATCH)])
    run.train(1)
    assert run.streams.counts().dead == {"traces": 1}
    assert run.streams.counts().trained == BATCH


def test_a_group_that_can_never_be_trained_on_is_dead_lettered_at_once(run: Run) -> None:
    """One longer than the model's 384 positions, and numbers that are none."""
    long, rewarded, sampled = (make_group(90 + n, vocabulary=90, prompt_length=9) for n in range(3))
    long = replace(long, prompt_token_ids=long.prompt_token_ids * 50)
    rewarded = _with_first(rewarded, verdict=replace(rewarded.traces[0].verdict, reward=1e200))
    completion = sampled.traces[0].completion
    logprobs = (-math.inf,) * len(completion.logprobs)
    sampled = _with_first(sampled, completion=replace(completion, logprobs=logprobs))
    run.add([long, rewarded, sampled, *_groups(BATCH)])
    run.train(1)
    assert run.streams.counts().dead == {"traces": 3}
    assert run.streams.counts().trained == BATCH
    assert run.accounted()
    said = "".join(run.reasons())
    for reason in (
        "group group-90, a prompt of 450",
        "group-91: reward of completion 0 is 1e+200",
        "a log-probability is not finite",
    ):
        assert reason in said


def _with_first(group: TraceGroup, **fields: Any) -> TraceGroup:
    return replace(group, traces=(changed(group.traces[0], **fields), *group.traces[1:]))


def test_a_group_whose_gradient_is_not_finite_is_given_up_and_the_run_goes_on(run: Run) -> None:
    """Its numbers are finite by themselves; the others of its batch are trained on."""
    huge = make_group(99, vocabulary=90)
    huge = replace(
        huge,
        traces=tuple(
            changed(
                trace,
                verdict=replace(trace.verdict, reward=-3e17 * slot),
                completion=replace(trace.completion, logprobs=(-40.0,) * len(trace.completion.logprobs)),
            )
            for slot, trace in enumerate(huge.traces)
        ),
    )
    run.add([*_groups(BATCH - 1), huge, *_groups(BATCH + 1, first=50)])
    run.train(2, normalise=False, dual_clip=0.0)
    assert run.streams.counts().dead == {"traces": 1}
    assert run.streams.counts().trained == 2 * BATCH
    assert "group group-99 alone: step 0: gradient norm is" in run.reasons()[0]
    assert run.accounted()


LONGEST = 40
"""Tokens of a prompt that only the group at fault has."""


class KilledError(BaseException):
    """As by the kernel: nothing catches it."""


def _failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, tokens: int = LONGEST) -> None:
    """A forward pass with so many tokens in a prompt fails; it cannot be made to without a small machine."""
    score = Policy.score

    def short(self: Policy, batch: Any, **rest: Any) -> Any:
        if int(batch.position_ids_1T.max()) >= tokens:
            raise error
        return score(self, batch, **rest)

    monkeypatch.setattr(Policy, "score", short)


@pytest.mark.parametrize("objective", ["grpo", "ppo"])
def test_a_group_that_does_not_fit_into_memory_is_given_up(
    objective: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others learn as if it had never been there."""
    other = run.twin()
    other.add(_groups(2 * BATCH))
    other.train(2, objective=objective)
    large = make_group(99, vocabulary=90, prompt_length=LONGEST + 1)
    _failing(monkeypatch, RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    run.add([*_groups(BATCH + 1), large, *_groups(BATCH - 1, first=BATCH + 1)])
    run.train(2, objective=objective)
    assert run.streams.counts().dead == {"traces": 1}
    assert run.streams.counts().trained == 2 * BATCH
    assert "group group-99 alone: DefaultCPUAllocator" in run.reasons()[0]
    assert run.adapter(2) == other.adapter(2)
    assert run.accounted()


def test_a_group_that_the_process_dies_of_is_given_up_after_some_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, KilledError())
    run.add([make_group(99, vocabulary=90, prompt_length=LONGEST + 1), *_groups(2 * BATCH - 1)])
    for _ in range(attempts.MAX_ATTEMPTS):
        with pytest.raises(KilledError):
            run.train(1)
        assert run.streams.counts().dead == {}
    run.train(1)
    assert run.streams.counts().dead == {"traces": 1}
    assert run.streams.counts().trained == BATCH
    assert "group group-99: 3 steps on it ended the trainer" in run.reasons()[0]
    assert run.accounted()


def test_kills_from_outside_bury_no_group(run: Run) -> None:
    run.add(_groups(BATCH))
    for _ in range(2 * attempts.MAX_ATTEMPTS):
        with armed("trainer.stepped=error"), pytest.raises(OSError, match="failpoint"):
            run.train(1)
    run.train(1)
    assert run.streams.counts().dead == {}
    assert run.streams.counts().trained == BATCH


def test_where_every_group_fails_it_is_not_the_groups(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.add(_groups(BATCH))
    for _ in range(2 * attempts.MAX_ATTEMPTS):
        with monkeypatch.context() as patch:
            _failing(patch, ArithmeticError("the weights are NaN"), tokens=0)
            with pytest.raises(ArithmeticError, match="no group of the batch can be trained on"):
                run.train(1)
    run.train(1)
    assert run.streams.counts().trained == BATCH, "once the fault is mended they are trained on"
    assert run.streams.counts().dead == {}


def test_a_second_trainer_fences_the_first(run: Run) -> None:
    run.add(_groups(BATCH))
    settings = run.settings(1)
    epoch = run.streams.take_over()
    publisher = Publisher(run.streams.policy, settings, epoch=epoch, loop=run.events)
    run.streams.take_over()
    with pytest.raises(Conflict, match="another trainer"):
        loop.train(
            settings,
            Policy(settings),
            run.streams,
            publisher,
            commit=None,
            epoch=epoch,
            stopping=threading.Event(),
        )


def test_a_lost_run_folder_does_not_restart_the_numbers(run: Run, tmp_path: Path) -> None:
    run.add(_groups(BATCH))
    run.train(1)
    run.folder = tmp_path / "empty"
    with pytest.raises(SetupError, match=r"has published policy-v000001(.|\n)* choose another --run"):
        run.train(2)


def test_a_trainer_of_another_folder_does_not_fence_the_one_that_runs(run: Run, tmp_path: Path) -> None:
    run.add(_groups(BATCH))
    run.train(1)
    epoch = run.streams.take_over()
    run.folder = tmp_path / "other"
    with pytest.raises(SetupError, match="has published policy-v000001"):
        asyncio.run(process.run(run.settings(2, port=0)))
    with contextlib.closing(redis.Redis.from_url(run.url)) as client:
        assert client.get(run.streams.redis.key("epoch")) == str(epoch).encode(), "nobody came in between"


def test_a_run_goes_back_to_an_earlier_version(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """By its copy under the next number: nobody ever sees a number with other bytes, or a smaller one."""
    run.add(_groups(3 * BATCH))
    run.train(3)
    (run.version(3) / "optimizer.safetensors").write_bytes(b"rotten")
    with pytest.raises(
        SetupError, match=r"policy-v000003/optimizer.safetensors is damaged.*--from-version 2"
    ):
        run.train(4)
    on_their_way = [
        replace(group, policy=replace(group.policy, number=3)) for group in _groups(BATCH, first=50)
    ]
    run.add(on_their_way)
    moments = (run.version(2) / "optimizer.safetensors").read_bytes()
    run.train(5, from_version=2)
    assert run.adapter(4) == run.adapter(2)
    assert (run.version(4) / "optimizer.safetensors").read_bytes() == moments
    assert run.adapter(5) != run.adapter(4)
    said = "goes back to version 2, now numbered 4: versions after 2 up to 3 are discarded"
    assert caplog.text.count(said) == 1
    assert "start again from zero" not in caplog.text
    counts = run.streams.counts()
    assert (counts.trained, counts.dropped) == (4 * BATCH, {})
    assert run.accounted()
    policy = run.streams.policy.read()
    assert policy is not None
    assert policy.version.number == 5
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 5]
    assert rows[-1]["age_max"] == 1, "sampled by 3, trained on at 4"


def test_a_trainer_that_is_started_again_does_not_go_back_again(run: Run) -> None:
    run.add(_groups(5 * BATCH))
    run.train(2)
    run.train(4, from_version=1)
    run.train(5, from_version=1)
    assert run.adapter(3) == run.adapter(1)
    assert sorted(commits.folders(run.folder / "adapters")) == list(range(6))
    assert len({run.adapter(number) for number in range(6)}) == 5


def test_a_trainer_told_to_go_on_from_the_newest_version_does_not_return_to_it(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.add(_groups(5 * BATCH))
    run.train(2)
    run.train(3, from_version=2)
    run.train(4, from_version=2)
    assert "--from-version 2: the run has gone back to it already and continues" in caplog.text
    assert len({run.adapter(number) for number in range(5)}) == 5, "version 3 was not discarded"


def test_going_back_further_than_the_moments_begins_them_anew(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.add(_groups(4 * BATCH))
    run.train(3)
    assert not (run.version(1) / "optimizer.safetensors").exists()
    run.train(5, from_version=1)
    assert "Adam's moments start again from zero" in caplog.text
    assert run.adapter(4) == run.adapter(1) != run.adapter(5)


def test_a_lost_end_of_the_run_folder_is_given_up_on_demand(run: Run) -> None:
    """As after a restored backup: Redis, and servers, know a later version."""
    run.add(_groups(3 * BATCH))
    run.train(2)
    shutil.rmtree(run.version(2))
    with pytest.raises(SetupError, match=r"newest in .* is policy-v000001: .* --from-version 1"):
        run.train(3)
    run.train(4, from_version=1)
    assert run.adapter(3) == run.adapter(1) != run.adapter(4)


def test_after_going_back_generation_runs_ahead_no_further_than_before(run: Run) -> None:
    """Versions that were given up must not let it run ahead, nor hold it back for ever."""
    admission = Admission(Lead(BATCH, staleness=2, just_in_time=False), max_inflight=99)
    run.add(_groups(3 * BATCH))

    def room() -> int:
        overview, policy = run.streams.overview(), run.streams.policy.read()
        assert policy is not None
        ledger = RunCounts(accepted=overview.counts.accepted, untrained=overview.traces, pending=0)
        return admission.to_read(ledger, version=policy.version.number, held=0)

    for steps, from_version in ((3, None), (4, 0), (5, 1), (6, 2)):
        run.train(steps, from_version=from_version)
        assert room() == 3 * BATCH


class Reader(Intake):
    """An intake of its own, without a trainer."""

    def __init__(self, run: Run) -> None:
        super().__init__(
            run.streams,
            run.settings(1),
            commits.Commit(PolicyVersion(0, "0" * 64), run.folder, ()),
            check=lambda _: None,
            epoch=run.streams.take_over(),
            stopping=threading.Event(),
        )

    def batch(self, *, version: int = 0) -> list[str]:
        timer = threading.Timer(30.0, self._stopping.set)
        timer.start()
        batch = self.next_batch(version=version, while_waiting=lambda: None)
        timer.cancel()
        assert batch is not None
        self.held = batch
        return [held.group.id for held in batch]


def test_a_group_that_redis_delivers_again_is_in_the_batch_once(run: Run, redis_url: str) -> None:
    """As when Redis comes back without its last second: the same entry is new once more."""
    groups = _groups(BATCH)
    run.add(groups[:2])
    with Reader(run) as reader, contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        until(lambda: run.streams.groups.pending() == 2)
        client.xgroup_setid(run.streams.redis.key("traces"), "trainer", "0")
        until(lambda: reader._ready.qsize() == 4)
        run.add(groups[2:])
        assert reader.batch() == [group.id for group in groups]


def test_a_group_published_twice_is_trained_once_and_settled(run: Run) -> None:
    groups = _groups(BATCH)
    run.add([groups[0], groups[0], *groups[1:]])
    with Reader(run) as reader:
        assert reader.batch() == [group.id for group in groups]
        reader.acknowledge(reader.held, ledger=())
    assert run.streams.counts().dropped == {"double": 1}
    assert run.streams.groups.length() == 0
    assert run.accounted()


def test_a_trained_group_that_is_made_again_counts_by_its_answers(run: Run) -> None:
    """As when Redis lost groups that were committed: their positions give groups of the same ids."""
    groups = _groups(BATCH)
    run.add(groups)
    run.train(1)
    first = groups[1].traces[0]
    other = changed(first, completion=replace(first.completion, token_ids=(7,), logprobs=(-1.0,)))
    run.add([groups[0], replace(groups[1], traces=(other, *groups[1].traces[1:])), *_groups(BATCH, first=90)])
    run.train(2)
    assert run.streams.counts().trained == BATCH + 1 + BATCH
    assert run.streams.counts().dropped == {"remade": 1}
    assert run.accounted()


def test_groups_of_another_reward_version_do_not_share_a_batch(run: Run) -> None:
    def judged(group: TraceGroup, *versions: str) -> TraceGroup:
        verdicts = [
            replace(trace.verdict, reward_version=version)
            for trace, version in zip(group.traces, versions, strict=True)
        ]
        traces = [
            changed(trace, verdict=verdict) for trace, verdict in zip(group.traces, verdicts, strict=True)
        ]
        return replace(group, traces=tuple(traces))

    groups = _groups(BATCH + 2)
    run.add([judged(groups[0], *"tttt")])
    run.add([judged(groups[1], *"uuuu")], accept="u")
    run.add([judged(groups[2], *"uuuv")], accept="u, v")
    run.add([judged(group, *"uuuu") for group in groups[3:]], accept="u")
    with Reader(run) as reader:
        assert reader.batch() == [groups[i].id for i in (1, 3, 4)]
        reader.acknowledge(reader.held, ledger=())
    assert run.streams.counts().dropped == {"reward_version": 1}
    assert run.streams.counts().dead == {"traces": 1}
    assert run.accounted()


def test_a_delivery_lost_on_the_way_comes_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending under the trainer's name, yet never seen by it."""
    monkeypatch.setattr("services.trainer.batches.intake.CLAIM_EVERY_S", 0.1)
    monkeypatch.setattr("services.trainer.batches.intake.IDLE_S", 0.3)
    groups = _groups(BATCH)
    run.add(groups[:1])
    with Reader(run) as reader:
        until(lambda: reader._ready.qsize() == 1)
        run.add(groups[1:])
        lost = run.streams.groups.read(consumer="trainer", count=9, block_s=0.1)
        assert set(reader.batch()) == {group.id for group in groups}
        reader.acknowledge(reader.held, ledger=())
    assert len(lost) <= 2
    assert run.accounted()


def test_entries_of_a_lost_reply_come_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis has delivered them, and nobody got them. They are neither late nor behind newer ones."""
    xreadgroup, lost = run.streams.redis.client.xreadgroup, []

    def replies(*args: Any, **kwargs: Any) -> Any:
        reply = xreadgroup(*args, **kwargs)
        if reply and ">" in str(args) and not lost:
            lost.append(reply)
            raise redis.ConnectionError("the reply is lost")
        return reply

    groups = _groups(2 * BATCH)
    run.add(groups)
    monkeypatch.setattr(run.streams.redis.client, "xreadgroup", replies)
    with Reader(run) as reader:
        assert reader.batch() == [group.id for group in groups[:BATCH]]
        reader.acknowledge(reader.held, ledger=())
        assert reader.batch() == [group.id for group in groups[BATCH:]]
        reader.acknowledge(reader.held, ledger=())
    assert lost
    assert run.accounted()


def test_stale_groups_are_dropped_before_the_batch_is_full(run: Run) -> None:
    run.add(_groups(BATCH))
    with Reader(run) as reader:
        waiting = threading.Thread(target=reader.next_batch, kwargs={"version": 9, "while_waiting": int})
        waiting.start()
        until(lambda: run.streams.counts().dropped == {"stale": BATCH})
        reader._stopping.set()
        waiting.join()
    assert run.streams.counts().accepted == 0


def test_a_policy_record_that_redis_lost_is_published_again(run: Run, redis_url: str) -> None:
    run.add(_groups(BATCH))
    run.train(1)
    adapter = run.streams.policy.read()
    assert adapter is not None
    epoch = run.streams.take_over()
    publisher = Publisher(run.streams.policy, run.settings(1), epoch=epoch, loop=run.events)
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        client.delete(run.streams.redis.key("policy"))
    publisher.republish(adapter)
    publisher.wait()
    assert run.streams.policy.read() == adapter
