"""Converts frozen dataclasses to Arrow rows and back. The schema is derived from the dataclass.

Supported types of fields are `str`, `int`, `float`, `bool`, `bytes`, enums of strings, `Literal` of strings,
`tuple[X, ...]`, `Mapping[str, X]`, `X | None`, and dataclasses of these. A column that a file lacks gets the
field's default, so files stay readable when a field with a default is added.
"""

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
from pydantic import TypeAdapter

from rookery.trace import Completion, EngineStamp, PolicyVersion, TraceGroup, Turn

_WIDTHS: Mapping[tuple[type, str], pa.DataType] = {
    # The same widths as on the wire: uint32 for token ids, float for log-probabilities.
    (Completion, "token_ids"): pa.list_(pa.uint32()),
    (Completion, "logprobs"): pa.list_(pa.float32()),
    (TraceGroup, "prompt_token_ids"): pa.list_(pa.uint32()),
    (Turn, "prompt_token_ids"): pa.list_(pa.uint32()),
    (PolicyVersion, "number"): pa.uint64(),
    (EngineStamp, "nodes"): pa.uint64(),
}

_PLAIN: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}

_adapter = cache(TypeAdapter)


def adapter(record: type) -> TypeAdapter[Any]:
    """Converts records of a dataclass to rows (`dump_python`) and back (`validate_python`)."""
    return _adapter(record)


def schema_of(record: type) -> pa.Schema:
    """The Arrow schema of a dataclass. Raises `TypeError` if a field has a type that is not supported."""
    hints = get_type_hints(record)
    columns = []
    for name in (field.name for field in dataclasses.fields(record)):
        try:
            column = _column(name, hints[name])
        except TypeError as error:
            raise TypeError(f"{record.__name__}.{name}: {error}") from error
        widths = (_WIDTHS[base, name] for base in record.__mro__ if (base, name) in _WIDTHS)
        columns.append(column.with_type(next(widths, column.type)))
    return pa.schema(columns)


def _column(name: str, hint: Any) -> pa.Field:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _column(name, inner).with_nullable(True)
    return pa.field(name, _type(hint, origin, arguments), nullable=False)


def _type(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> pa.DataType:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return pa.struct(list(schema_of(hint)))
    is_text = isinstance(hint, type) and issubclass(hint, StrEnum)
    if is_text or (origin is Literal and all(isinstance(argument, str) for argument in arguments)):
        return pa.string()
    if origin is tuple and arguments[1:] == (...,):
        return pa.list_(_column("item", arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return pa.map_(pa.string(), _column("value", arguments[1]))
    raise TypeError(f"no column can hold {hint}")
