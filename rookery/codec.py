"""Records to protobuf and back. The only place that knows both shapes.

Decoding checks what the type system cannot: the trace version, known enum values, and that every
sampled token has its log-probability.
"""

import math

from google.protobuf.message import DecodeError

from rookery.errors import WireError
from rookery.trace import (
    TRACE_VERSION,
    Completion,
    EngineStamp,
    Evaluation,
    Message,
    Move,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Verdict,
)
from rookery.v1 import position_pb2, trace_pb2, verdict_pb2


def position_to_proto(position: Position) -> position_pb2.Position:
    return position_pb2.Position(
        id=position.id,
        fen=position.fen,
        ply=position.ply,
        phase=f"PHASE_{position.phase.name}",
        game_id=position.game_id,
        last_moves=position.last_moves,
        white_elo=position.white_elo,
        black_elo=position.black_elo,
    )


def position_from_proto(proto: position_pb2.Position) -> Position:
    return Position(
        id=proto.id,
        fen=proto.fen,
        ply=proto.ply,
        phase=Phase[_enum_name(position_pb2.Phase, proto.phase, "PHASE_")],
        game_id=proto.game_id,
        last_moves=tuple(proto.last_moves),
        white_elo=proto.white_elo if proto.HasField("white_elo") else None,
        black_elo=proto.black_elo if proto.HasField("black_elo") else None,
    )


def encode_position(position: Position) -> bytes:
    return position_to_proto(position).SerializeToString(deterministic=True)


def decode_position(data: bytes) -> Position:
    proto = position_pb2.Position()
    _parse(proto, data)
    return position_from_proto(proto)


def verdict_to_proto(verdict: Verdict) -> verdict_pb2.Verdict:
    proto = verdict_pb2.Verdict(
        reward=verdict.reward,
        outcome=f"OUTCOME_{verdict.outcome.name}",
        win_before=verdict.win_before,
        win_after=verdict.win_after,
        regret=verdict.regret,
        components=verdict.components,
        reward_version=verdict.reward_version,
    )
    if verdict.move:
        proto.move.CopyFrom(verdict_pb2.Move(uci=verdict.move.uci, san=verdict.move.san))
    if verdict.best:
        proto.best.CopyFrom(verdict_pb2.Move(uci=verdict.best.uci, san=verdict.best.san))
    if verdict.eval_before:
        proto.eval_before.CopyFrom(_evaluation_to_proto(verdict.eval_before))
    if verdict.eval_after:
        proto.eval_after.CopyFrom(_evaluation_to_proto(verdict.eval_after))
    if verdict.engine:
        proto.engine.CopyFrom(verdict_pb2.Engine(id=verdict.engine.id, nodes=verdict.engine.nodes))
    return proto


def verdict_from_proto(proto: verdict_pb2.Verdict) -> Verdict:
    return Verdict(
        reward=proto.reward,
        outcome=Outcome[_enum_name(verdict_pb2.Outcome, proto.outcome, "OUTCOME_")],
        reward_version=proto.reward_version,
        move=Move(proto.move.uci, proto.move.san) if proto.HasField("move") else None,
        best=Move(proto.best.uci, proto.best.san) if proto.HasField("best") else None,
        win_before=proto.win_before if proto.HasField("win_before") else None,
        win_after=proto.win_after if proto.HasField("win_after") else None,
        regret=proto.regret if proto.HasField("regret") else None,
        eval_before=_evaluation(proto.eval_before) if proto.HasField("eval_before") else None,
        eval_after=_evaluation(proto.eval_after) if proto.HasField("eval_after") else None,
        components=dict(proto.components),
        engine=EngineStamp(proto.engine.id, proto.engine.nodes) if proto.HasField("engine") else None,
    )


def encode_group(group: TraceGroup) -> bytes:
    proto = trace_pb2.TraceGroup(
        trace_version=TRACE_VERSION,
        id=group.id,
        run=group.run,
        position=position_to_proto(group.position),
        prompt=trace_pb2.Prompt(
            style=group.prompt.style,
            messages=[
                trace_pb2.Message(role=message.role, content=message.content)
                for message in group.prompt.messages
            ],
            fen=group.prompt.fen,
        ),
        prompt_token_ids=group.prompt_token_ids,
        policy=trace_pb2.PolicyVersion(number=group.policy.number, sha256=group.policy.sha256),
        base_model=group.base_model,
        sampling=trace_pb2.Sampling(
            temperature=group.sampling.temperature,
            top_p=group.sampling.top_p,
            top_k=group.sampling.top_k,
            max_tokens=group.sampling.max_tokens,
        ),
        traces=[_trace_to_proto(trace) for trace in group.traces],
        created_at=group.created_at,
        generation_s=group.generation_s,
        reward_s=group.reward_s,
    )
    return proto.SerializeToString(deterministic=True)


def decode_group(data: bytes) -> TraceGroup:
    """Parses one entry of the `traces` stream; raises `WireError` for anything but a sound group."""
    proto = trace_pb2.TraceGroup()
    _parse(proto, data)
    if proto.trace_version != TRACE_VERSION:
        raise WireError(
            f"trace version {proto.trace_version} of group {proto.id!r}: this process reads {TRACE_VERSION}"
        )
    if not proto.traces or not proto.prompt_token_ids:
        raise WireError(
            f"group {proto.id!r}: {len(proto.traces)} traces and {len(proto.prompt_token_ids)} prompt tokens"
        )
    return TraceGroup(
        id=proto.id,
        run=proto.run,
        position=position_from_proto(proto.position),
        prompt=Prompt(
            style=proto.prompt.style,
            messages=tuple(Message(m.role, m.content) for m in proto.prompt.messages),
            fen=proto.prompt.fen,
        ),
        prompt_token_ids=tuple(proto.prompt_token_ids),
        policy=PolicyVersion(proto.policy.number, proto.policy.sha256),
        base_model=proto.base_model,
        sampling=Sampling(
            temperature=proto.sampling.temperature,
            top_p=proto.sampling.top_p,
            top_k=proto.sampling.top_k,
            max_tokens=proto.sampling.max_tokens,
        ),
        traces=tuple(_trace(trace, group_id=proto.id) for trace in proto.traces),
        created_at=proto.created_at,
        generation_s=proto.generation_s,
        reward_s=proto.reward_s,
    )


def _trace_to_proto(trace: Trace) -> trace_pb2.Trace:
    completion = trace.completion
    return trace_pb2.Trace(
        id=trace.id,
        completion=trace_pb2.Completion(
            text=completion.text,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            seed=completion.seed,
        ),
        verdict=verdict_to_proto(trace.verdict),
    )


def _trace(proto: trace_pb2.Trace, *, group_id: str) -> Trace:
    completion = proto.completion
    if len(completion.token_ids) != len(completion.logprobs):
        raise WireError(
            f"trace {proto.id!r} of group {group_id!r}: {len(completion.token_ids)} tokens "
            f"but {len(completion.logprobs)} logprobs"
        )
    if not all(map(math.isfinite, completion.logprobs)):
        raise WireError(f"trace {proto.id!r} of group {group_id!r}: a log-probability is not finite")
    if not math.isfinite(proto.verdict.reward):
        raise WireError(
            f"trace {proto.id!r} of group {group_id!r}: reward {proto.verdict.reward!r} is not finite"
        )
    return Trace(
        id=proto.id,
        completion=Completion(
            text=completion.text,
            token_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs),
            finish_reason=completion.finish_reason,
            seed=completion.seed,
        ),
        verdict=verdict_from_proto(proto.verdict),
    )


def _evaluation_to_proto(evaluation: Evaluation) -> verdict_pb2.Evaluation:
    if evaluation.mate is not None:
        return verdict_pb2.Evaluation(mate=evaluation.mate)
    return verdict_pb2.Evaluation(cp=evaluation.cp)


def _evaluation(proto: verdict_pb2.Evaluation) -> Evaluation:
    if proto.WhichOneof("score") == "mate":
        return Evaluation(mate=proto.mate)
    return Evaluation(cp=proto.cp)


def _parse(proto: position_pb2.Position | trace_pb2.TraceGroup, data: bytes) -> None:
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes are no {proto.DESCRIPTOR.full_name}: {error}") from error


def _enum_name(enum: object, value: int, prefix: str) -> str:
    name: str = enum.Name(value) if value in enum.values() else ""  # type: ignore[attr-defined]
    if not name or name.endswith("_UNSPECIFIED"):
        raise WireError(f"{value} is no known value of {prefix.rstrip('_')}")
    return name.removeprefix(prefix)
