from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_OPENING: _ClassVar[Phase]
    PHASE_MIDDLEGAME: _ClassVar[Phase]
    PHASE_ENDGAME: _ClassVar[Phase]
PHASE_UNSPECIFIED: Phase
PHASE_OPENING: Phase
PHASE_MIDDLEGAME: Phase
PHASE_ENDGAME: Phase

class Position(_message.Message):
    __slots__ = ("id", "fen", "ply", "phase", "game_id", "last_moves", "white_elo", "black_elo", "task", "move", "target", "episode")
    ID_FIELD_NUMBER: _ClassVar[int]
    FEN_FIELD_NUMBER: _ClassVar[int]
    PLY_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    GAME_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_MOVES_FIELD_NUMBER: _ClassVar[int]
    WHITE_ELO_FIELD_NUMBER: _ClassVar[int]
    BLACK_ELO_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    id: str
    fen: str
    ply: int
    phase: Phase
    game_id: str
    last_moves: _containers.RepeatedScalarFieldContainer[str]
    white_elo: int
    black_elo: int
    task: str
    move: str
    target: str
    episode: str
    def __init__(self, id: _Optional[str] = ..., fen: _Optional[str] = ..., ply: _Optional[int] = ..., phase: _Optional[_Union[Phase, str]] = ..., game_id: _Optional[str] = ..., last_moves: _Optional[_Iterable[str]] = ..., white_elo: _Optional[int] = ..., black_elo: _Optional[int] = ..., task: _Optional[str] = ..., move: _Optional[str] = ..., target: _Optional[str] = ..., episode: _Optional[str] = ...) -> None: ...
