"""Data sets of Rookery as questions: JSON lines of these commands.

rookery data sample --style fen --count 1000 > questions.jsonl
rookery arena questions --positions heldout.jsonl > questions.jsonl
rookery data tasks rookworld --count 1000 --out lines --jsonl questions.jsonl
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery_bridges.client import Answer

SERVICE_TASKS = ("P", "A", "game")
"""Tasks that the reward service judges, besides choosing a move."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and what its answer is judged by.

    `task` is the task of the data set, such as "P" or "puzzle"; empty: choose a move. `move` is the move that
    task "A" asks about. `solution` is the data set's own answer, empty if it has none. A question of
    brittleness names its form, the id of the `original` question, and how that one's move reads here.
    """

    id: str
    prompt: list[dict[str, str]]
    fen: str
    task: str = ""
    move: str = ""
    solution: str = ""
    form: str = ""
    original: str = ""
    same_move: str = ""

    def answer(self, response: str, *, truncated: bool = False) -> Answer:
        task = self.task if self.task in SERVICE_TASKS else ""
        move = self.move if task == "A" else ""
        return Answer(self.fen, response, task=task, truncated=truncated, move=move)

    def solved(self) -> Answer:
        """The data set's own answer. It closes the reasoning that the client's `opening` begins."""
        return self.answer(f"</think>{self.solution}")


def begins_with_book(episode: str) -> bool:
    """Whether games of this kind begin with openings of the service's book, and not with a position."""
    return "start=book" in (option.strip() for option in episode.split(","))


def first_request(
    episode: str, *, number: int, fen: str = "", style: str = "fen", slot: int | None = None
) -> dict[str, Any]:
    """What `RewardClient.play` begins episode `number` with. Unless there is a slot, every second game with
    `colours=both` is that of the other colour."""
    begin = {"episode": episode, "style": style, "seed": number, "slot": number % 2 if slot is None else slot}
    return begin if begins_with_book(episode) else {**begin, "fen": fen}


def read_questions(path: str | Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        ValueError: a line is no question. The message has its number.
    """
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _question(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                message = f"{path}:{number}: not a question: {line[:120]!r}: {type(error).__name__} {error}"
                raise ValueError(message) from error


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """An answer to a question of brittleness; `move` is None unless it is legal."""

    id: str
    original: str
    same_move: str
    move: str | None


_RANKS, _FILES = str.maketrans("12345678", "87654321"), str.maketrans("abcdefgh", "hgfedcba")


def same_move(answers: Iterable[ChangedAnswer]) -> float:
    """How often the move is that of the original question, of the pairs where either is legal."""
    equal = [move == before for move, before in _pairs(answers, moves=True) if move or before]
    return sum(equal) / len(equal) if equal else 0.0


def legal_change(answers: Iterable[ChangedAnswer]) -> float:
    """The share of legal moves in changed questions, less that of their original questions."""
    pairs = _pairs(answers, moves=False)
    return sum(bool(move) - bool(before) for move, before in pairs) / len(pairs) if pairs else 0.0


def _pairs(answers: Iterable[ChangedAnswer], *, moves: bool) -> list[tuple[str | None, str | None]]:
    """The move of each changed question, as the original board shows it, and that of its original question.
    `moves`: only of questions that have a same move."""
    answers = list(answers)
    before = {answer.id: answer.move for answer in answers}
    return [
        (_as_before(answer), before[answer.original])
        for answer in answers
        if answer.original in before and (answer.same_move or not moves)
    ]


def _as_before(answer: ChangedAnswer) -> str | None:
    tables = {"ranks": _RANKS, "files": _FILES}
    if answer.move is None or answer.same_move not in tables:
        return answer.move
    return answer.move[:4].translate(tables[answer.same_move]) + answer.move[4:]


def _question(row: dict[str, Any]) -> Question:
    prompt, solution = row.get("prompt"), ""
    if prompt is None:
        *prompt, answer = row["messages"]
        solution = answer["content"]
    task, move = row.get("task", ""), row.get("move", "")
    changed = {name: row.get(name, "") for name in ("form", "original", "same_move")}
    return Question(row["id"], prompt, row["fen"], task=task, move=move, solution=solution, **changed)
