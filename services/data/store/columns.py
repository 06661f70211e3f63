"""Converts frozen dataclasses to Arrow rows and back. The schema is derived from the dataclass.

Supported types of fields are `str`, `int`, `float`, `bool`, `bytes`, enums of strings, `Literal` of strings,
`tuple[X, ...]`, `Mapping[str, X]`, `X | None`, and dataclasses of these. A column that a file lacks gets the
field's default, so files stay readable when a field with a default is added.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from rookery.trace import Completion, EngineStamp, PolicyVersion, TraceGroup

_WIDTHS: Mapping[tuple[type, str], pa.DataType] = {
    # The same widths as on the wire: uint32 for token ids, float for log-probabilities.
    (Completion, "token_ids"): pa.list_(pa.uint32()),
    (Completion, "logprobs"): pa.list_(pa.float32()),
    (TraceGroup, "prompt_token_ids"): pa.list_(pa.uint32()),
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


@dataclass(frozen=True, slots=True)
class Column:
    """An Arrow type, and the functions that convert a value to it and back; None if none is needed."""

    type: pa.DataType
    nullable: bool = False
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None


@cache
def columns_of(record: type) -> dict[str, Column]:
    """The columns of a dataclass, in the order of its fields.

    Raises:
        TypeError: a field has a type that is not supported.
    """
    hints = get_type_hints(record)
    columns = {}
    for name in (field.name for field in dataclasses.fields(record)):
        try:
            column = _column(hints[name])
        except TypeError as error:
            raise TypeError(f"{record.__name__}.{name}: {error}") from error
        widths = (_WIDTHS[base, name] for base in record.__mro__ if (base, name) in _WIDTHS)
        columns[name] = dataclasses.replace(column, type=next(widths, column.type))
    return columns


def schema_of(record: type) -> pa.Schema:
    """The Arrow schema of a dataclass."""
    return pa.schema(_fields(record))


def to_row(value: object) -> dict[str, Any]:
    """Converts a record to a row for Arrow."""
    row = {}
    record: type = type(value)
    for name, column in columns_of(record).items():
        item = getattr(value, name)
        row[name] = item if item is None or column.encode is None else column.encode(item)
    return row


def from_row(record: type, row: Mapping[str, Any]) -> Any:
    """Converts a row to a record. Only columns whose field has a default may be missing."""
    values = {}
    for name, column in columns_of(record).items():
        if name in row:
            item = row[name]
            values[name] = item if item is None or column.decode is None else column.decode(item)
    return record(**values)


def _fields(record: type) -> list[pa.Field]:
    return [
        pa.field(name, column.type, nullable=column.nullable) for name, column in columns_of(record).items()
    ]


def _column(hint: Any) -> Column:
    if hint in _PLAIN:
        return Column(_PLAIN[hint])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Column(pa.string(), encode=str, decode=hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Column(pa.struct(_fields(hint)), encode=to_row, decode=lambda row: from_row(hint, row))
    return _generic(hint)


def _generic(hint: Any) -> Column:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return dataclasses.replace(_column(inner), nullable=True)
    if origin is Literal and all(isinstance(argument, str) for argument in arguments):
        return Column(pa.string())
    if origin is tuple and arguments[1:] == (...,):
        return _list(_column(arguments[0]))
    if origin is not None and issubclass(origin, Mapping) and arguments[0] is str:
        return _map(_column(arguments[1]))
    raise TypeError(f"no column can hold {hint}")


def _list(item: Column) -> Column:
    encode, decode = item.encode, item.decode
    return Column(
        pa.list_(pa.field("item", item.type, nullable=item.nullable)),
        encode=list if encode is None else lambda items: [encode(one) for one in items],
        decode=tuple if decode is None else lambda items: tuple(decode(one) for one in items),
    )


def _map(item: Column) -> Column:
    encode, decode = item.encode, item.decode
    return Column(
        pa.map_(pa.string(), pa.field("value", item.type, nullable=item.nullable)),
        encode=lambda items: [(key, encode(one) if encode else one) for key, one in items.items()],
        decode=lambda pairs: {key: decode(one) if decode else one for key, one in pairs},
    )
