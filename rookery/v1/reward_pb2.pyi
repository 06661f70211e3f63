from rookery.v1 import verdict_pb2 as _verdict_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreRequest(_message.Message):
    __slots__ = ("fen", "response", "task", "scheme", "truncated", "move", "target", "effects")
    FEN_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    fen: str
    response: str
    task: str
    scheme: str
    truncated: bool
    move: str
    target: str
    effects: _containers.RepeatedCompositeFieldContainer[Effect]
    def __init__(self, fen: _Optional[str] = ..., response: _Optional[str] = ..., task: _Optional[str] = ..., scheme: _Optional[str] = ..., truncated: bool = ..., move: _Optional[str] = ..., target: _Optional[str] = ..., effects: _Optional[_Iterable[_Union[Effect, _Mapping]]] = ...) -> None: ...

class Effect(_message.Message):
    __slots__ = ("start", "end", "regret")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REGRET_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    regret: float
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., regret: _Optional[float] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ("verdict",)
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: _verdict_pb2.Verdict
    def __init__(self, verdict: _Optional[_Union[_verdict_pb2.Verdict, _Mapping]] = ...) -> None: ...

class ScoreBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ScoreRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[ScoreRequest, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("type", "title", "status", "detail")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    type: str
    title: str
    status: int
    detail: str
    def __init__(self, type: _Optional[str] = ..., title: _Optional[str] = ..., status: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class ScoreBatchItem(_message.Message):
    __slots__ = ("verdict", "problem")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    verdict: _verdict_pb2.Verdict
    problem: Problem
    def __init__(self, verdict: _Optional[_Union[_verdict_pb2.Verdict, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class ScoreBatchResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ScoreBatchItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ScoreBatchItem, _Mapping]]] = ...) -> None: ...
