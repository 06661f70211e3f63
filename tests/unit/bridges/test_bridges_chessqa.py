"""ChessQA for harnesses scores as the arena does, and as the benchmark itself."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.sections.chessqa import ChessQAQuestion, final_answer
from rookery_bridges.chessqa import is_right, read_rows

ROW = {
    "task_id": "q", "task_type": "structural_legal_move_all", "task_category": "Structural", "input": "",
    "question": "Say CONTEXT_PLACEHOLDERas FORMAT_EXAMPLE_PLACEHOLDER.", "format_examples": ["e2e4"],
    "correct_answer": "400, e2e4", "answer_type": "multi", "metadata": {},
}  # fmt: skip
PARTS = ("FINAL ANSWER:", "final answer:", " ", "\n", "**", "400", "e2e4", ", ", "The final answer is ", "$",
         "\\boxed{", "}", "<think>", "</think>")  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=9), st.sampled_from(["single", "multi"]))
def test_the_score_is_the_arena_s(parts: list[str], kind: str) -> None:
    question = ChessQAQuestion.model_validate({**ROW, "answer_type": kind})
    text = "".join(parts)
    row = {"type": kind, "key": ROW["correct_answer"]}
    assert is_right(row, text) == (question.result(final_answer(text)) == "right")


def test_the_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "structural.jsonl"
    path.write_text(json.dumps(ROW) + "\n\n")
    (row,) = read_rows(path)
    assert row["prompt"] == "Say as e2e4."
    path.write_text(json.dumps(ROW) + "\n{}\n")
    with pytest.raises(ValueError, match=r"structural\.jsonl:2: not a question of ChessQA: '\{\}'"):
        list(read_rows(path))
