"""Converts records to protobuf and back: a message has the fields of its record, by the same names.

Decoding also checks the trace version, that enum values are known, and that every sampled token has a
log-probability.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError

from rookery.errors import WireError
from rookery.trace import TRACE_VERSION, Outcome, Phase, Position, Prompt, ScoreItem, TraceGroup, Verdict
from rookery.v1 import position_pb2, reward_pb2, trace_pb2, verdict_pb2

R = TypeVar("R")

_NUMBERS: Mapping[type[StrEnum], Any] = {Phase: position_pb2.Phase, Outcome: verdict_pb2.Outcome}


def position_to_proto(position: Position) -> position_pb2.Position:
    return position_pb2.Position(**_fields_of(Position, position))


def position_from_proto(proto: position_pb2.Position) -> Position:
    return _record_of(Position, proto)


def encode_position(position: Position) -> bytes:
    return position_to_proto(position).SerializeToString(deterministic=True)


def decode_position(data: bytes) -> Position:
    return position_from_proto(_parsed(position_pb2.Position(), data))


def item_to_proto(item: ScoreItem, *, scheme: str = "") -> reward_pb2.ScoreRequest:
    """`scheme` is for an item that names none."""
    proto = reward_pb2.ScoreRequest(**_fields_of(ScoreItem, item))
    proto.scheme = proto.scheme or scheme
    return proto


def item_from_proto(proto: reward_pb2.ScoreRequest) -> ScoreItem:
    return _record_of(ScoreItem, proto)


def verdict_to_proto(verdict: Verdict) -> verdict_pb2.Verdict:
    return verdict_pb2.Verdict(**_fields_of(Verdict, verdict))


def verdict_from_proto(proto: verdict_pb2.Verdict) -> Verdict:
    return _record_of(Verdict, proto)


def prompt_to_proto(prompt: Prompt) -> trace_pb2.Prompt:
    return trace_pb2.Prompt(**_fields_of(Prompt, prompt))


def encode_group(group: TraceGroup) -> bytes:
    proto = trace_pb2.TraceGroup(trace_version=TRACE_VERSION, **_fields_of(TraceGroup, group))
    return proto.SerializeToString(deterministic=True)


def decode_group(data: bytes, *, in_progress: bool = False) -> TraceGroup:
    """Parses one entry of the `traces` stream; raises `WireError` for anything but a sound group. Episodes
    that are `in_progress` may end with a turn without a verdict."""
    proto = _parsed(trace_pb2.TraceGroup(), data)
    if not 1 <= proto.trace_version <= TRACE_VERSION:
        raise WireError(
            f"trace version {proto.trace_version} of group {proto.id!r}: this process reads {TRACE_VERSION}"
        )
    if proto.trace_version == 1:
        for trace in proto.traces:
            trace.turns.add(completion=trace.completion, verdict=trace.verdict)
    if not proto.traces or not proto.prompt_token_ids:
        raise WireError(
            f"group {proto.id!r}: {len(proto.traces)} traces and {len(proto.prompt_token_ids)} prompt tokens"
        )
    for trace in proto.traces:
        place = f"trace {trace.id!r} of group {proto.id!r}"
        if not trace.turns or not (in_progress or trace.turns[-1].HasField("verdict")):
            raise WireError(f"{place}: no verdict of the last of {len(trace.turns)} turns")
        for turn in trace.turns:
            _check_turn(turn, place=place)
    return _record_of(TraceGroup, proto)


def _check_turn(turn: trace_pb2.Turn, *, place: str) -> None:
    tokens, logprobs = turn.completion.token_ids, turn.completion.logprobs
    if len(tokens) != len(logprobs):
        raise WireError(f"{place}: {len(tokens)} tokens but {len(logprobs)} logprobs")
    if not all(map(math.isfinite, logprobs)):
        raise WireError(f"{place}: a log-probability is not finite")
    for reward in (turn.verdict.reward, *turn.rewards.values()):
        if not math.isfinite(reward):
            raise WireError(f"{place}: reward {reward!r} is not finite")
    # The next turn of a text that grows by moves alone adds nothing to it.
    if turn.HasField("prompt") != bool(turn.prompt_token_ids or turn.continues):
        raise WireError(f"{place}: a prompt of {len(turn.prompt_token_ids)} tokens")


def _parsed(proto: R, data: bytes) -> R:
    try:
        proto.ParseFromString(data)  # type: ignore[attr-defined]
    except DecodeError as error:
        name = proto.DESCRIPTOR.full_name  # type: ignore[attr-defined]
        raise WireError(f"{len(data)} bytes are not a {name}: {error}") from error
    return proto


def _fields_of(kind: type, record: Any) -> dict[str, Any]:
    """The fields of a record as protobuf takes them. It builds messages from mappings faster than Python
    builds and copies them."""
    return {
        name: write(value) if write else value
        for name, write, _ in _converters(kind)
        if (value := getattr(record, name)) is not None
    }


def _record_of(kind: Callable[..., R], proto: Any) -> R:
    return kind(**{name: read(proto, name) for name, _, read in _converters(kind)})


Write = Callable[[Any], Any]
Read = Callable[[Any, str], Any]


@cache
def _converters(kind: Any) -> list[tuple[str, Write | None, Read]]:
    """Of each field of a dataclass its name, how it is written (None: as it is), and how it is read."""
    hints = get_type_hints(kind)
    return [(field.name, *_converter(hints[field.name])) for field in fields(kind)]


def _converter(hint: Any) -> tuple[Write | None, Read]:
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        write, read = _converter(arguments[0])
        return write, lambda proto, name: read(proto, name) if proto.HasField(name) else None
    if origin is tuple:
        item = arguments[0]
        if not _is_record(item):
            return None, lambda proto, name: tuple(getattr(proto, name))
        return (
            lambda records: [_fields_of(item, record) for record in records],
            lambda proto, name: tuple([_record_of(item, part) for part in getattr(proto, name)]),
        )
    if _is_record(hint):
        return partial(_fields_of, hint), lambda proto, name: _record_of(hint, getattr(proto, name))
    if hint in _NUMBERS:
        prefix = hint.__name__.upper()
        members = {_NUMBERS[hint].Value(f"{prefix}_{member.name}"): member for member in hint}
        return lambda member: f"{prefix}_{member.name}", partial(_member, members, prefix)
    return None, (lambda proto, name: dict(getattr(proto, name))) if origin is Mapping else getattr


def _is_record(hint: Any) -> bool:
    return is_dataclass(hint)


def _member(members: Mapping[int, StrEnum], prefix: str, proto: Any, name: str) -> StrEnum:
    number = getattr(proto, name)
    if number not in members:
        raise WireError(f"{number} is not a known value of {prefix}")
    return members[number]
