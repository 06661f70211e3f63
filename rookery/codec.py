"""Converts records to protobuf and back.

Decoding also checks the trace version, that enum values are known, and that every sampled token has a
log-probability.
"""

import math
from dataclasses import asdict, fields

from google.protobuf.message import DecodeError

from rookery.errors import WireError
from rookery.trace import (
    TRACE_VERSION,
    Claim,
    Completion,
    EngineStamp,
    Evaluation,
    Message,
    Move,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    ProcessReward,
    Prompt,
    Sampling,
    ScoreItem,
    Sentence,
    Trace,
    TraceGroup,
    Verdict,
)
from rookery.v1 import position_pb2, reward_pb2, trace_pb2, verdict_pb2

_OUTCOMES = {verdict_pb2.Outcome.Value(f"OUTCOME_{outcome.name}"): outcome for outcome in Outcome}
_ITEM_FIELDS = [field.name for field in fields(ScoreItem)]


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
        task=position.task,
        move=position.move,
        target=position.target,
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
        task=proto.task,
        move=proto.move,
        target=proto.target,
    )


def encode_position(position: Position) -> bytes:
    return position_to_proto(position).SerializeToString(deterministic=True)


def decode_position(data: bytes) -> Position:
    proto = position_pb2.Position()
    _parse(proto, data)
    return position_from_proto(proto)


def item_to_proto(item: ScoreItem, *, scheme: str = "") -> reward_pb2.ScoreRequest:
    """`scheme` is for an item that names none."""
    proto = reward_pb2.ScoreRequest(**{name: getattr(item, name) for name in _ITEM_FIELDS})
    proto.scheme = proto.scheme or scheme
    return proto


def item_from_proto(proto: reward_pb2.ScoreRequest) -> ScoreItem:
    return ScoreItem(**{name: getattr(proto, name) for name in _ITEM_FIELDS})


def verdict_to_proto(verdict: Verdict) -> verdict_pb2.Verdict:
    # Protobuf builds its parts from mappings faster than Python builds and copies them.
    return verdict_pb2.Verdict(
        reward=verdict.reward,
        outcome=f"OUTCOME_{verdict.outcome.name}",
        move=_move_fields(verdict.move),
        best=_move_fields(verdict.best),
        win_before=verdict.win_before,
        win_after=verdict.win_after,
        regret=verdict.regret,
        eval_before=_evaluation_fields(verdict.eval_before),
        eval_after=_evaluation_fields(verdict.eval_after),
        components=verdict.components,
        engine={"id": verdict.engine.id, "nodes": verdict.engine.nodes} if verdict.engine else None,
        reward_version=verdict.reward_version,
        sentences=[asdict(sentence) for sentence in verdict.sentences],
        process_rewards=[
            {"start": step.start, "end": step.end, "reward": step.reward} for step in verdict.process_rewards
        ],
    )


def verdict_from_proto(proto: verdict_pb2.Verdict) -> Verdict:
    has = proto.HasField
    return Verdict(
        reward=proto.reward,
        outcome=_outcome(proto.outcome),
        reward_version=proto.reward_version,
        move=_move(proto.move) if has("move") else None,
        best=_move(proto.best) if has("best") else None,
        win_before=proto.win_before if has("win_before") else None,
        win_after=proto.win_after if has("win_after") else None,
        regret=proto.regret if has("regret") else None,
        eval_before=_evaluation(proto.eval_before) if has("eval_before") else None,
        eval_after=_evaluation(proto.eval_after) if has("eval_after") else None,
        components=dict(proto.components),
        engine=EngineStamp(proto.engine.id, proto.engine.nodes) if has("engine") else None,
        sentences=tuple(_sentence(sentence) for sentence in proto.sentences),
        process_rewards=tuple(
            ProcessReward(step.start, step.end, step.reward) for step in proto.process_rewards
        ),
    )


def prompt_to_proto(prompt: Prompt) -> trace_pb2.Prompt:
    messages = [trace_pb2.Message(role=m.role, content=m.content) for m in prompt.messages]
    return trace_pb2.Prompt(style=prompt.style, messages=messages, fen=prompt.fen)


def encode_group(group: TraceGroup) -> bytes:
    proto = trace_pb2.TraceGroup(
        trace_version=TRACE_VERSION,
        id=group.id,
        run=group.run,
        position=position_to_proto(group.position),
        prompt=prompt_to_proto(group.prompt),
        prompt_token_ids=group.prompt_token_ids,
        policy=trace_pb2.PolicyVersion(number=group.policy.number, sha256=group.policy.sha256),
        base_model=group.base_model,
        sampling=trace_pb2.Sampling(**asdict(group.sampling)),
        traces=[
            trace_pb2.Trace(
                id=trace.id,
                completion={
                    field.name: getattr(trace.completion, field.name) for field in fields(Completion)
                },
                verdict=verdict_to_proto(trace.verdict),
            )
            for trace in group.traces
        ],
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
        sampling=Sampling(**{field.name: getattr(proto.sampling, field.name) for field in fields(Sampling)}),
        traces=tuple(_trace(trace, group_id=proto.id) for trace in proto.traces),
        created_at=proto.created_at,
        generation_s=proto.generation_s,
        reward_s=proto.reward_s,
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


def _outcome(number: int) -> Outcome:
    outcome = _OUTCOMES.get(number)
    if outcome is None:
        raise WireError(f"{number} is not a known value of OUTCOME")
    return outcome


def _move_fields(move: Move | None) -> dict[str, str] | None:
    return {"uci": move.uci, "san": move.san} if move else None


def _move(proto: verdict_pb2.Move) -> Move:
    return Move(proto.uci, proto.san)


def _evaluation_fields(evaluation: Evaluation | None) -> dict[str, int | None] | None:
    if evaluation is None:
        return None
    return {"cp": evaluation.cp} if evaluation.mate is None else {"mate": evaluation.mate}


def _evaluation(proto: verdict_pb2.Evaluation) -> Evaluation:
    return Evaluation(mate=proto.mate) if proto.HasField("mate") else Evaluation(cp=proto.cp)


def _sentence(proto: verdict_pb2.Sentence) -> Sentence:
    claims = tuple(
        Claim(
            claim.concept,
            claim.start,
            claim.end,
            claim.true if claim.HasField("true") else None,
            weight=claim.weight if claim.HasField("weight") else None,
        )
        for claim in proto.claims
    )
    return Sentence(proto.start, proto.end, proto.read, claims)


def _parse(proto: position_pb2.Position | trace_pb2.TraceGroup, data: bytes) -> None:
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes are not a {proto.DESCRIPTOR.full_name}: {error}") from error


def _enum_name(enum: object, value: int, prefix: str) -> str:
    name: str = enum.Name(value) if value in enum.values() else ""  # type: ignore[attr-defined]
    if not name or name.endswith("_UNSPECIFIED"):
        raise WireError(f"{value} is not a known value of {prefix.rstrip('_')}")
    return name.removeprefix(prefix)
