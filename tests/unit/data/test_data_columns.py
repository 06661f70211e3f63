"""Dataclasses as columns: every record of the wire comes back, and what no column can hold is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings

from chess_datasets.store.columns import adapter, schema_of
from rookery.trace import Move, Phase, Position, TraceGroup
from tests.unit.rookery.records import POSITION, groups, positions


def through_arrow(record: Any) -> Any:
    records = adapter(type(record))
    batch = pa.RecordBatch.from_pylist([records.dump_python(record)], schema=schema_of(type(record)))
    return records.validate_python(batch.to_pylist(maps_as_pydicts="strict")[0])


@given(positions)
def test_a_position_comes_back(position: Position) -> None:
    assert through_arrow(position) == position


@given(groups)
@settings(max_examples=2 * settings.default.max_examples // 5)
def test_a_group_comes_back(group: TraceGroup) -> None:
    assert through_arrow(group) == group


@dataclass(frozen=True, slots=True)
class Everything:
    name: str
    side: Literal["white", "black"]
    weight: float | None
    phases: tuple[Phase, ...]
    moves: Mapping[str, Move]
    gaps: tuple[float | None, ...]
    raw: bytes
    sure: bool
    notes: Mapping[str, str | None] = field(default_factory=dict)
    best: Move | None = None


def test_every_type_that_is_promised() -> None:
    record = Everything(
        name="a",
        side="black",
        weight=None,
        phases=(Phase.OPENING, Phase.ENDGAME),
        moves={"best": Move("e2e4", "e4")},
        gaps=(0.5, None),
        raw=b"\0\xff",
        sure=True,
        notes={"a": None, "b": "c"},
    )
    assert through_arrow(record) == record
    assert schema_of(Everything).field("best").nullable
    assert not schema_of(Everything).field("name").nullable


def test_a_missing_column_takes_its_default() -> None:
    row = adapter(Position).dump_python(POSITION)
    del row["white_elo"], row["last_moves"]
    read = adapter(Position).validate_python(row)
    assert (read.white_elo, read.last_moves, read.black_elo) == (None, (), POSITION.black_elo)


def test_token_columns_are_as_wide_as_on_the_wire() -> None:
    turn = schema_of(TraceGroup).field("traces").type.value_type.field("turns").type.value_type
    assert turn.field("prompt_token_ids").type.value_type == pa.uint32()
    completion = turn.field("completion").type
    assert completion.field("token_ids").type.value_type == pa.uint32()
    assert completion.field("logprobs").type.value_type == pa.float32()


@pytest.mark.parametrize("hint", [Any, dict[int, str], tuple[int, str], int | str, list[int], object])
def test_what_no_column_holds_is_refused_by_name(hint: Any) -> None:
    record = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"part": hint}}))
    with pytest.raises(TypeError, match=r"Odd\.part: no column can hold"):
        schema_of(record)
