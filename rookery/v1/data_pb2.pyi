from rookery.v1 import position_pb2 as _position_pb2
from rookery.v1 import trace_pb2 as _trace_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Split(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPLIT_UNSPECIFIED: _ClassVar[Split]
    SPLIT_TRAIN: _ClassVar[Split]
    SPLIT_HELDOUT: _ClassVar[Split]
    SPLIT_ALL: _ClassVar[Split]
SPLIT_UNSPECIFIED: Split
SPLIT_TRAIN: Split
SPLIT_HELDOUT: Split
SPLIT_ALL: Split

class SamplePositionsRequest(_message.Message):
    __slots__ = ("count", "seed", "offset", "split")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    count: int
    seed: int
    offset: int
    split: Split
    def __init__(self, count: _Optional[int] = ..., seed: _Optional[int] = ..., offset: _Optional[int] = ..., split: _Optional[_Union[Split, str]] = ...) -> None: ...

class SamplePositionsResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: _position_pb2.Position
    def __init__(self, position: _Optional[_Union[_position_pb2.Position, _Mapping]] = ...) -> None: ...

class RenderPromptRequest(_message.Message):
    __slots__ = ("fen", "style", "last_moves")
    FEN_FIELD_NUMBER: _ClassVar[int]
    STYLE_FIELD_NUMBER: _ClassVar[int]
    LAST_MOVES_FIELD_NUMBER: _ClassVar[int]
    fen: str
    style: str
    last_moves: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, fen: _Optional[str] = ..., style: _Optional[str] = ..., last_moves: _Optional[_Iterable[str]] = ...) -> None: ...

class RenderPromptResponse(_message.Message):
    __slots__ = ("prompt",)
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    prompt: _trace_pb2.Prompt
    def __init__(self, prompt: _Optional[_Union[_trace_pb2.Prompt, _Mapping]] = ...) -> None: ...

class GetGameRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Game(_message.Message):
    __slots__ = ("id", "source", "number", "start_fen", "moves", "white_elo", "black_elo", "pgn")
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FEN_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    WHITE_ELO_FIELD_NUMBER: _ClassVar[int]
    BLACK_ELO_FIELD_NUMBER: _ClassVar[int]
    PGN_FIELD_NUMBER: _ClassVar[int]
    id: str
    source: str
    number: int
    start_fen: str
    moves: _containers.RepeatedScalarFieldContainer[str]
    white_elo: int
    black_elo: int
    pgn: str
    def __init__(self, id: _Optional[str] = ..., source: _Optional[str] = ..., number: _Optional[int] = ..., start_fen: _Optional[str] = ..., moves: _Optional[_Iterable[str]] = ..., white_elo: _Optional[int] = ..., black_elo: _Optional[int] = ..., pgn: _Optional[str] = ...) -> None: ...

class GetGameResponse(_message.Message):
    __slots__ = ("game",)
    GAME_FIELD_NUMBER: _ClassVar[int]
    game: Game
    def __init__(self, game: _Optional[_Union[Game, _Mapping]] = ...) -> None: ...
