"""What the tasks for lm-evaluation-harness call. lm-eval loads this file by its path.

`--metadata '{"questions": "questions.jsonl"}'` names the file of questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from datasets import Dataset

from rookery_bridges import RewardClient, chessqa
from rookery_bridges.questions import ChangedAnswer, Question, read_questions
from rookery_bridges.questions import legal_change as legal_change
from rookery_bridges.questions import same_move as same_move


def load(questions: str, **kwargs: Any) -> dict[str, Dataset]:
    """The questions as the split `test`."""
    return {"test": Dataset.from_list([asdict(question) for question in read_questions(questions)])}


def prompt(doc: Mapping[str, Any]) -> str:
    """The messages of the prompt as one text, which a chat template takes for the user's."""
    return "\n\n".join(turn["content"] for turn in doc["prompt"])


def load_chessqa(questions: str, **kwargs: Any) -> dict[str, Dataset]:
    """The questions of a file of ChessQA as the split `test`."""
    return {"test": Dataset.from_list(list(chessqa.read_rows(questions)))}


def judge_chessqa(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Whether the answer is ChessQA's key."""
    return {"right": float(chessqa.is_right(doc, results[0]))}


def judge(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """The reward, and whether the move is legal (or the line well-formed)."""
    [verdict] = RewardClient().score([Question(**doc).answer(results[0])])
    return {"reward": verdict.reward, "legal": float(verdict.legal)}


def judge_brittleness(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """Whether the move is legal, and what is compared with the answer to the original question."""
    question = Question(**doc)
    [verdict] = RewardClient().score([question.answer(results[0])])
    move = verdict.move if verdict.legal else None
    changed = ChangedAnswer(question.id, question.original, question.same_move, move)
    return {"legal": float(verdict.legal), "legal_change": changed, "same_move": changed}


def judge_puzzle(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Whether the move is the solution's or mates. The service reads both, so notation does not matter."""
    question = Question(**doc)
    played, right = RewardClient().score([question.answer(results[0]), question.solved()])
    return {"right": float(played.legal and (played.move == right.move or played.mates))}
