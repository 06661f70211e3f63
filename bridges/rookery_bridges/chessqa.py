"""ChessQA (arXiv 2510.23948): the questions of its files, and its authors' score, for harnesses.

A file is one of `benchmark/*.jsonl` of CSSLab/chessqa-benchmark. Their rule that an answer near its token
limit counts as cut needs token counts, which harnesses do not pass on: it is left out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_LINE = re.compile(r"FINAL ANSWER:(?=[\s\S])\s*([^\n]*)", re.IGNORECASE)
_BOX = re.compile(r"[Tt]he\s{1,8}final\s{1,8}answer\s{1,8}is\s{1,8}\$?\\boxed\{([^}]{1,2000})\}")
_MOST_CHARS = 200_000


def read_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, each with its `prompt`, without pieces and legal moves. Raises `ValueError`, with
    the number of the line, if one is no question."""
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            example = (row.get("format_examples") or [""])[0]
            text = row["question"].replace("CONTEXT_PLACEHOLDER", "")
            yield {
                "id": row["task_id"], "prompt": text.replace("FORMAT_EXAMPLE_PLACEHOLDER", example),
                "category": row["task_category"], "key": row["correct_answer"], "type": row["answer_type"],
            }  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: not a question of ChessQA: {line[:120]!r}") from error


def is_right(row: Mapping[str, Any], response: str) -> bool:
    """Whether the response's last `FINAL ANSWER:`, after any reasoning, is the key."""
    text = response.rpartition("</think>")[2][-_MOST_CHARS:]
    if lines := _LINE.findall(text):
        answer = re.sub(r"^FINAL ANSWER:", "", str(lines[-1]).strip(), flags=re.IGNORECASE)
    elif boxes := _BOX.findall(text):
        answer = str(boxes[-1])
    else:
        return False
    answer = answer.strip().strip("*")
    if row["type"] == "single":
        return answer.lower().strip() == str(row["key"]).lower().strip()
    return _items(answer) == _items(str(row["key"]))


def _items(answer: str) -> set[str]:
    return {item.strip().lower() for item in answer.split(",") if item.strip()}
