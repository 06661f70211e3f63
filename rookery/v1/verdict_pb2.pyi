from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_LEGAL: _ClassVar[Outcome]
    OUTCOME_NO_BOX: _ClassVar[Outcome]
    OUTCOME_TRUNCATED: _ClassVar[Outcome]
    OUTCOME_EMPTY_BOX: _ClassVar[Outcome]
    OUTCOME_TOO_LONG: _ClassVar[Outcome]
    OUTCOME_UNPARSABLE: _ClassVar[Outcome]
    OUTCOME_AMBIGUOUS: _ClassVar[Outcome]
    OUTCOME_ILLEGAL: _ClassVar[Outcome]
    OUTCOME_NULL_MOVE: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_LEGAL: Outcome
OUTCOME_NO_BOX: Outcome
OUTCOME_TRUNCATED: Outcome
OUTCOME_EMPTY_BOX: Outcome
OUTCOME_TOO_LONG: Outcome
OUTCOME_UNPARSABLE: Outcome
OUTCOME_AMBIGUOUS: Outcome
OUTCOME_ILLEGAL: Outcome
OUTCOME_NULL_MOVE: Outcome

class Move(_message.Message):
    __slots__ = ("uci", "san")
    UCI_FIELD_NUMBER: _ClassVar[int]
    SAN_FIELD_NUMBER: _ClassVar[int]
    uci: str
    san: str
    def __init__(self, uci: _Optional[str] = ..., san: _Optional[str] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("cp", "mate")
    CP_FIELD_NUMBER: _ClassVar[int]
    MATE_FIELD_NUMBER: _ClassVar[int]
    cp: int
    mate: int
    def __init__(self, cp: _Optional[int] = ..., mate: _Optional[int] = ...) -> None: ...

class Engine(_message.Message):
    __slots__ = ("id", "nodes")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    id: str
    nodes: int
    def __init__(self, id: _Optional[str] = ..., nodes: _Optional[int] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("concept", "start", "end", "true", "weight")
    CONCEPT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TRUE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    concept: str
    start: int
    end: int
    true: bool
    weight: float
    def __init__(self, concept: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., true: bool = ..., weight: _Optional[float] = ...) -> None: ...

class Sentence(_message.Message):
    __slots__ = ("start", "end", "read", "claims", "effect", "influence")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    INFLUENCE_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    read: bool
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    effect: float
    influence: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., read: bool = ..., claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ..., effect: _Optional[float] = ..., influence: _Optional[float] = ...) -> None: ...

class ProcessReward(_message.Message):
    __slots__ = ("start", "end", "reward")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    reward: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., reward: _Optional[float] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("reward", "outcome", "move", "best", "win_before", "win_after", "regret", "eval_before", "eval_after", "components", "engine", "reward_version", "sentences", "process_rewards", "value_rewards")
    class ComponentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REWARD_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    WIN_BEFORE_FIELD_NUMBER: _ClassVar[int]
    WIN_AFTER_FIELD_NUMBER: _ClassVar[int]
    REGRET_FIELD_NUMBER: _ClassVar[int]
    EVAL_BEFORE_FIELD_NUMBER: _ClassVar[int]
    EVAL_AFTER_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    REWARD_VERSION_FIELD_NUMBER: _ClassVar[int]
    SENTENCES_FIELD_NUMBER: _ClassVar[int]
    PROCESS_REWARDS_FIELD_NUMBER: _ClassVar[int]
    VALUE_REWARDS_FIELD_NUMBER: _ClassVar[int]
    reward: float
    outcome: Outcome
    move: Move
    best: Move
    win_before: float
    win_after: float
    regret: float
    eval_before: Evaluation
    eval_after: Evaluation
    components: _containers.ScalarMap[str, float]
    engine: Engine
    reward_version: str
    sentences: _containers.RepeatedCompositeFieldContainer[Sentence]
    process_rewards: _containers.RepeatedCompositeFieldContainer[ProcessReward]
    value_rewards: _containers.RepeatedCompositeFieldContainer[ProcessReward]
    def __init__(self, reward: _Optional[float] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., move: _Optional[_Union[Move, _Mapping]] = ..., best: _Optional[_Union[Move, _Mapping]] = ..., win_before: _Optional[float] = ..., win_after: _Optional[float] = ..., regret: _Optional[float] = ..., eval_before: _Optional[_Union[Evaluation, _Mapping]] = ..., eval_after: _Optional[_Union[Evaluation, _Mapping]] = ..., components: _Optional[_Mapping[str, float]] = ..., engine: _Optional[_Union[Engine, _Mapping]] = ..., reward_version: _Optional[str] = ..., sentences: _Optional[_Iterable[_Union[Sentence, _Mapping]]] = ..., process_rewards: _Optional[_Iterable[_Union[ProcessReward, _Mapping]]] = ..., value_rewards: _Optional[_Iterable[_Union[ProcessReward, _Mapping]]] = ...) -> None: ...
