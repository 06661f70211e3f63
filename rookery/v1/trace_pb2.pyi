from rookery.v1 import position_pb2 as _position_pb2
from rookery.v1 import verdict_pb2 as _verdict_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("style", "messages", "fen", "tools")
    STYLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FEN_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    style: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    fen: str
    tools: str
    def __init__(self, style: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., fen: _Optional[str] = ..., tools: _Optional[str] = ...) -> None: ...

class PolicyVersion(_message.Message):
    __slots__ = ("number", "sha256")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    number: int
    sha256: str
    def __init__(self, number: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "max_tokens")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    max_tokens: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("text", "token_ids", "logprobs", "finish_reason", "seed")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    finish_reason: str
    seed: int
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., finish_reason: _Optional[str] = ..., seed: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("completion", "verdict", "prompt", "prompt_token_ids", "continues", "policy", "observation", "rewards", "role")
    class RewardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    completion: Completion
    verdict: _verdict_pb2.Verdict
    prompt: Prompt
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    continues: bool
    policy: PolicyVersion
    observation: str
    rewards: _containers.ScalarMap[str, float]
    role: str
    def __init__(self, completion: _Optional[_Union[Completion, _Mapping]] = ..., verdict: _Optional[_Union[_verdict_pb2.Verdict, _Mapping]] = ..., prompt: _Optional[_Union[Prompt, _Mapping]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., continues: bool = ..., policy: _Optional[_Union[PolicyVersion, _Mapping]] = ..., observation: _Optional[str] = ..., rewards: _Optional[_Mapping[str, float]] = ..., role: _Optional[str] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("id", "completion", "verdict", "turns")
    ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    id: str
    completion: Completion
    verdict: _verdict_pb2.Verdict
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    def __init__(self, id: _Optional[str] = ..., completion: _Optional[_Union[Completion, _Mapping]] = ..., verdict: _Optional[_Union[_verdict_pb2.Verdict, _Mapping]] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ...) -> None: ...

class TraceGroup(_message.Message):
    __slots__ = ("trace_version", "id", "run", "position", "prompt", "prompt_token_ids", "policy", "base_model", "sampling", "traces", "created_at", "generation_s", "reward_s")
    TRACE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    BASE_MODEL_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_S_FIELD_NUMBER: _ClassVar[int]
    REWARD_S_FIELD_NUMBER: _ClassVar[int]
    trace_version: int
    id: str
    run: str
    position: _position_pb2.Position
    prompt: Prompt
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    policy: PolicyVersion
    base_model: str
    sampling: Sampling
    traces: _containers.RepeatedCompositeFieldContainer[Trace]
    created_at: float
    generation_s: float
    reward_s: float
    def __init__(self, trace_version: _Optional[int] = ..., id: _Optional[str] = ..., run: _Optional[str] = ..., position: _Optional[_Union[_position_pb2.Position, _Mapping]] = ..., prompt: _Optional[_Union[Prompt, _Mapping]] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., policy: _Optional[_Union[PolicyVersion, _Mapping]] = ..., base_model: _Optional[str] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., traces: _Optional[_Iterable[_Union[Trace, _Mapping]]] = ..., created_at: _Optional[float] = ..., generation_s: _Optional[float] = ..., reward_s: _Optional[float] = ...) -> None: ...
