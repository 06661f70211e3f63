"""The answers of an evaluation or a battery: its answers.jsonl, filtered, with two players side by side.

The file is that of `rookery evaluate` and `rookery battery`. Lines that are none of its answers are left out.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from rookery.errors import InvalidInput
from services.viewer.store import Stamp, stamp_of

PAGE = 20
_MOST_BYTES = 200_000_000
_TEXT_CHARS = 20_000
_OTHER = "other"


class BatteryQuery(BaseModel, extra="forbid", use_attribute_docstrings=True):
    """Selects questions. Empty: all."""

    section: str = Field(default="", max_length=200)
    task: str = Field(default="", max_length=200)
    """The form of a question, or its type."""
    outcome: str = Field(default="", max_length=100)
    """That of the first of `player`, or of any player."""
    player: list[str] = Field(default=[], max_length=2)
    """One player, or two side by side: then only questions that both were asked."""
    page: int = Field(default=0, ge=0, le=10**6)
    """Counted from 0."""


@dataclass(frozen=True, slots=True)
class Record:
    """An answer. `question` is its name within section and task."""

    section: str
    task: str
    question: str
    player: str
    outcome: str
    fen: str
    move: str
    regret: float | None
    tokens: int
    text: str


def answers(path: Path, query: BatteryQuery) -> dict[str, Any]:
    """A page of questions that pass the filter, and how many answers have each value of each field under the
    other filters. Raises `InvalidInput` if the file is too large."""
    stamp = stamp_of(path)
    records = _records(path, stamp) if stamp else ()
    passing = [record for record in records if _passes(record, query)]
    first = query.player[0] if query.player else ""
    by_question: dict[tuple[str, str, str], dict[str, Record]] = {}
    for record in records:
        if _passes(record, query, without="outcome"):
            by_question.setdefault(_question(record), {})[record.player] = record
    questions = dict.fromkeys(_question(record) for record in passing if record.player == first or not first)
    rows = [
        by_question[question] for question in questions if by_question[question].keys() >= set(query.player)
    ]
    page = rows[query.page * PAGE : (query.page + 1) * PAGE]
    return {
        "players": sorted({record.player for record in records}),
        "counts": {
            name: Counter(
                getattr(record, name)
                for record in records
                if _passes(record, query, without=name) and (record.player == first or not first)
            )
            for name in ("section", "task", "outcome")
        },
        "questions": len(rows),
        "page_size": PAGE,
        "rows": [_row(row.values(), query.player) for row in page],
    }


def _passes(record: Record, query: BatteryQuery, *, without: str = "") -> bool:
    if query.player and record.player not in query.player:
        return False
    values = {name: getattr(query, name) for name in ("section", "task", "outcome") if name != without}
    return all(not value or getattr(record, name) == value for name, value in values.items())


def _question(record: Record) -> tuple[str, str, str]:
    return record.section, record.task, record.question


def _row(records: Iterable[Record], players: Sequence[str]) -> dict[str, Any]:
    ordered = sorted(records, key=lambda record: players.index(record.player) if players else 0)
    first, fen = ordered[0], next((record.fen for record in ordered if record.fen), "")
    answered = [
        {name: getattr(record, name) for name in ("player", "outcome", "move", "regret", "tokens", "text")}
        for record in ordered
    ]
    return {"section": first.section, "task": first.task, "question": first.question, "fen": fen,
            "answers": answered}  # fmt: skip


@lru_cache(maxsize=2)
def _records(path: Path, stamp: Stamp) -> tuple[Record, ...]:
    if stamp[0] > _MOST_BYTES:
        raise InvalidInput(f"{path.name} has {stamp[0]:,} bytes, more than {_MOST_BYTES:,}")
    with path.open("rb") as lines:
        return tuple(record for line in lines if (record := _record(line)))


def _record(line: bytes) -> Record | None:
    try:
        value = json.loads(line)
        judged = (value.get("answers") or [{}])[0]  # the greedy one comes first
        verdict = judged.get("verdict") or {}
        moves = value.get("moves") or [value.get("move") or (verdict.get("move") or {}).get("uci")]
        outcome = value.get("outcome") or verdict.get("outcome")
        if not outcome:
            return None
        regret = verdict.get("regret")
        return Record(
            section=str(value.get("section") or _OTHER),
            task=str(value.get("task") or value.get("variant") or ""),
            question=str(value["question"]),
            player=str(value["player"]),
            outcome=str(outcome),
            fen=str(value.get("fen") or ""),
            move=" ".join(str(move) for move in moves if move),
            regret=float(regret) if regret is not None else None,
            tokens=int(value.get("tokens") or judged.get("tokens") or 0),
            text=str(value.get("text") or judged.get("text") or "")[:_TEXT_CHARS],
        )
    except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
