"""The wire: what goes out comes back, its bytes never change, and damage is named."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.codec import (
    decode_group,
    decode_position,
    encode_group,
    encode_position,
    verdict_from_proto,
    verdict_to_proto,
)
from rookery.errors import WireError
from rookery.trace import Claim, Outcome, Phase, Position, Sentence, Trace, TraceGroup, Verdict
from rookery.v1 import position_pb2, trace_pb2, verdict_pb2
from tests.builders import changed
from tests.unit.rookery.records import (
    EPISODES,
    GROUP,
    POSITION,
    TRUTH_GROUP,
    VALUES_GROUP,
    groups,
    positions,
    verdicts,
)

GOLDEN = Path(__file__).parent / "golden"


@given(positions)
def test_a_position_comes_back(position: Position) -> None:
    assert decode_position(encode_position(position)) == position


@given(verdicts)
def test_a_verdict_comes_back(verdict: Verdict) -> None:
    proto = verdict_pb2.Verdict.FromString(verdict_to_proto(verdict).SerializeToString())
    assert verdict_from_proto(proto) == verdict


@given(groups)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_a_group_comes_back(group: TraceGroup) -> None:
    assert decode_group(encode_group(group)) == group


_SENTENCES = (Sentence(1, 18, read=True, claims=(Claim("loose piece", 1, 17, true=False),)),)
_FIRST = changed(GROUP.traces[0], verdict=replace(GROUP.traces[0].verdict, sentences=_SENTENCES))
PROCESS_GROUP = replace(GROUP, position=replace(POSITION, episode=""), traces=(_FIRST, *GROUP.traces[1:]))
"""As it was before claims had weights."""
TARGET_GROUP = replace(
    GROUP,
    position=replace(POSITION, episode=""),
    traces=(changed(_FIRST, verdict=replace(_FIRST.verdict, process_rewards=())), *GROUP.traces[1:]),
)
"""As it was before verdicts had process rewards."""
TARGET_POSITION = replace(POSITION, episode="")
"""As it was before positions had episodes."""
VERSION_1_GROUP = replace(TRUTH_GROUP, position=TARGET_POSITION)
TASK_POSITION = replace(TARGET_POSITION, target="")
"""As it was before positions had targets."""
PLAIN_POSITION = replace(TASK_POSITION, task="", move="")
_WITH_SENTENCES = TARGET_GROUP.traces[0]
SENTENCES_GROUP = replace(TARGET_GROUP, position=TASK_POSITION)
TASK_GROUP = replace(
    SENTENCES_GROUP,
    traces=(
        changed(_WITH_SENTENCES, verdict=replace(_WITH_SENTENCES.verdict, sentences=())),
        *GROUP.traces[1:],
    ),
)
"""As it was before verdicts had sentences."""
PLAIN_GROUP = replace(TASK_GROUP, position=PLAIN_POSITION)
"""As they were before positions had tasks."""
_WITH_ROLE, *_OTHERS = (
    replace(
        trace,
        turns=tuple(
            replace(turn, prompt=replace(turn.prompt, tools="") if turn.prompt else None)
            for turn in trace.turns
        ),
    )
    for trace in EPISODES.traces
)
ROLES_GROUP = replace(EPISODES, prompt=GROUP.prompt, traces=(_WITH_ROLE, *_OTHERS))
"""As it was before prompts had tools."""
TURNS_GROUP = replace(
    ROLES_GROUP,
    traces=(replace(_WITH_ROLE, turns=(replace(_WITH_ROLE.turns[0], role=""),)), *_OTHERS),
)
"""As it was before turns had roles."""


@pytest.mark.parametrize(
    ("name", "data", "version"),
    [
        ("position", encode_position(PLAIN_POSITION), 1),
        ("position_task", encode_position(TASK_POSITION), 1),
        ("position_target", encode_position(TARGET_POSITION), 1),
        ("position_episode", encode_position(POSITION), 1),
        ("trace_group", encode_group(GROUP), 2),
        ("trace_group_turns", encode_group(TURNS_GROUP), 2),
        ("trace_group_roles", encode_group(ROLES_GROUP), 2),
        ("trace_group_tools", encode_group(EPISODES), 2),
        ("trace_group_values", encode_group(VALUES_GROUP), 2),
    ],
)
def test_the_bytes_do_not_change(name: str, data: bytes, version: int) -> None:
    """A run in flight, or an archive, was written with these: a change of the wire must add, not alter."""
    assert data.hex() == (GOLDEN / f"{name}_v{version}.hex").read_text().strip()


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("trace_group_v1", PLAIN_GROUP),
        ("trace_group_task_v1", TASK_GROUP),
        ("trace_group_draw_v1", TASK_GROUP),  # with the field 14, which is reserved
        ("trace_group_sentences_v1", SENTENCES_GROUP),
        ("trace_group_target_v1", TARGET_GROUP),
        ("trace_group_process_v1", PROCESS_GROUP),
        ("trace_group_weight_v1", VERSION_1_GROUP),
        ("trace_group_truth_v2", TRUTH_GROUP),
    ],
)
def test_old_bytes_read_as_they_were_meant(name: str, group: TraceGroup) -> None:
    assert decode_group(bytes.fromhex((GOLDEN / f"{name}.hex").read_text())) == group


def test_the_golden_group_sets_every_field_of_the_wire() -> None:
    unset = set(unset_fields(trace_pb2.TraceGroup.FromString(encode_group(VALUES_GROUP))))
    assert unset == {"rookery.v1.Trace.completion", "rookery.v1.Trace.verdict"}, "which are of version 1"


def unset_fields(message: ProtoMessage) -> list[str]:
    """Fields without a value in `message` and in every message below it."""
    set_here = {field.full_name: value for field, value in message.ListFields()}
    missing = []
    for field in message.DESCRIPTOR.fields:
        value = set_here.get(field.full_name)
        if value is None:
            missing.append(field.full_name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.message_type.GetOptions().map_entry:
            # Of a repeated field the first is the complete one.
            missing += unset_fields(value[0] if field.is_repeated else value)
    # The other half of a oneof.
    return [
        name for name in missing if name not in {"rookery.v1.Evaluation.cp", "rookery.v1.Evaluation.mate"}
    ]


@pytest.mark.parametrize("decode", [decode_position, decode_group])
def test_noise_is_a_wire_error(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(WireError, match=r"3 bytes are not a rookery\.v1\."):
        decode(b"\xff\xff\xff")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_escape_as_anything_else(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_group(data)


def test_another_trace_version_is_refused() -> None:
    proto = trace_pb2.TraceGroup.FromString(encode_group(GROUP))
    proto.trace_version = 3
    with pytest.raises(WireError, match="trace version 3 of group 'g1': this process reads 2"):
        decode_group(proto.SerializeToString())


def test_a_token_without_its_logprob_is_refused() -> None:
    proto = trace_pb2.TraceGroup.FromString(encode_group(GROUP))
    proto.traces[0].turns[0].completion.logprobs.pop()
    with pytest.raises(WireError, match="trace 'g1-0' of group 'g1': 2 tokens but 1 logprobs"):
        decode_group(proto.SerializeToString())


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_no_number_is_refused(reward: float) -> None:
    proto = trace_pb2.TraceGroup.FromString(encode_group(GROUP))
    proto.traces[1].turns[0].verdict.reward = reward
    with pytest.raises(WireError, match=r"trace 'g1-1' of group 'g1': reward .* is not finite"):
        decode_group(proto.SerializeToString())


def test_an_episode_without_a_verdict_of_its_last_turn_is_refused() -> None:
    for traces in ((Trace("t", ()),), (Trace("t", EPISODES.traces[1].turns[:1]),)):
        with pytest.raises(WireError, match=r"trace 't' of group 'g1': no verdict of the last of [01] turns"):
            decode_group(encode_group(replace(GROUP, traces=traces)))


def test_a_prompt_without_tokens_is_refused() -> None:
    first = EPISODES.traces[0]
    without = replace(first, turns=(replace(first.turns[0], prompt_token_ids=(), continues=False),))
    with pytest.raises(WireError, match="trace 'g1-0' of group 'g1': a prompt of 0 tokens"):
        decode_group(encode_group(replace(GROUP, traces=(without,))))


@pytest.mark.parametrize("phase", [0, 99])
def test_an_unknown_phase_is_refused(phase: int) -> None:
    proto = position_pb2.Position.FromString(encode_position(POSITION))
    proto.phase = phase
    with pytest.raises(WireError, match=f"{phase} is not a known value of PHASE"):
        decode_position(proto.SerializeToString())


def test_records_and_wire_know_the_same_values() -> None:
    assert {f"PHASE_{phase.name}" for phase in Phase} == set(position_pb2.Phase.keys()) - {
        "PHASE_UNSPECIFIED"
    }
    assert {f"OUTCOME_{o.name}" for o in Outcome} == set(verdict_pb2.Outcome.keys()) - {"OUTCOME_UNSPECIFIED"}


@pytest.mark.parametrize(
    ("change", "message"), [({"traces": ()}, "0 traces"), ({"prompt_token_ids": ()}, "0 prompt tokens")]
)
def test_a_group_without_traces_or_prompt_is_no_group(change: dict[str, object], message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_group(encode_group(replace(GROUP, **change)))  # type: ignore[arg-type]


def test_a_logprob_that_is_no_number_is_refused() -> None:
    trace = GROUP.traces[0]
    broken = replace(trace.completion, token_ids=(1,), logprobs=(float("nan"),))
    with pytest.raises(WireError, match="log-probability is not finite"):
        decode_group(encode_group(replace(GROUP, traces=(changed(trace, completion=broken),))))
