"""Data sets of Rookery as questions: JSON lines of these commands.

rookery data sample --style fen --count 1000 > questions.jsonl
rookery data tasks rookworld --count 1000 --out lines --jsonl questions.jsonl
"""

import json
from collections.abc import Iterator
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
    task "A" asks about. `solution` is the data set's own answer, empty if it has none.
    """

    id: str
    prompt: list[dict[str, str]]
    fen: str
    task: str = ""
    move: str = ""
    solution: str = ""

    def answer(self, response: str, *, truncated: bool = False) -> Answer:
        task = self.task if self.task in SERVICE_TASKS else ""
        move = self.move if task == "A" else ""
        return Answer(self.fen, response, task=task, truncated=truncated, move=move)


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


def _question(row: dict[str, Any]) -> Question:
    prompt, solution = row.get("prompt"), ""
    if prompt is None:
        *prompt, answer = row["messages"]
        solution = answer["content"]
    task, move = row.get("task", ""), row.get("move", "")
    return Question(row["id"], prompt, row["fen"], task=task, move=move, solution=solution)
