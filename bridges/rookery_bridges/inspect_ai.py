"""Tasks for inspect-ai: the arena's puzzles, legality, brittleness, `P:` and `A:` lines, and ChessQA.

    inspect eval rookery_bridges/legality -T questions=questions.jsonl --model openai/...

`ROOKERY_REWARD_URL` says where the reward service is.
"""

from collections import defaultdict
from dataclasses import asdict, replace

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import TaskState, generate

from rookery_bridges import chessqa
from rookery_bridges.client import Answer, RewardClient, with_reasoning
from rookery_bridges.questions import ChangedAnswer, Question, read_questions
from rookery_bridges.questions import legal_change as _legal_change
from rookery_bridges.questions import same_move as _same_move

_MESSAGES = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}


@task
def legality(questions: str, scheme: str = "") -> Task:
    """Positions: the share of legal moves, and the reward."""
    return _task(questions, judged(scheme))


@task
def lines(questions: str) -> Task:
    """RookWorld's `P:` and `A:` lines: the reward, and the share of well-formed answers."""
    return _task(questions, judged(""))


@task
def puzzles(questions: str) -> Task:
    """Puzzles: right moves, and puzzles whose moves are all right, as in the arena."""
    return _task(questions, right_move())


@task
def brittleness(questions: str) -> Task:
    """Positions in changed forms: legal moves, and how often the move stays the same."""
    return _task(questions, unchanged())


@task(name="chessqa")
def chessqa_task(questions: str) -> Task:
    """The questions of a file of ChessQA: the share of right answers."""
    rows = list(chessqa.read_rows(questions))
    samples = [Sample(id=row["id"], input=row["prompt"], target=row["key"], metadata=row) for row in rows]
    return Task(dataset=MemoryDataset(samples), solver=generate(), scorer=key())


@scorer(metrics=[mean(), stderr()])
def key() -> Scorer:
    """1 for ChessQA's key, else 0."""

    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=float(chessqa.is_right(state.metadata, state.output.completion)))

    return score


def _task(path: str, judge: Scorer) -> Task:
    samples = [_sample(question) for question in read_questions(path)]
    return Task(dataset=MemoryDataset(samples), solver=generate(), scorer=judge)


def _sample(question: Question) -> Sample:
    messages = [_MESSAGES[turn["role"]](content=turn["content"]) for turn in question.prompt]
    metadata = asdict(replace(question, prompt=[]))
    return Sample(id=question.id, input=messages, target=question.solution, metadata=metadata)


def _answer(state: TaskState) -> Answer:
    """The answer of the model, with its reasoning, which inspect-ai splits off."""
    parts = state.output.message.content if state.output.choices else ""
    thoughts = (
        [] if isinstance(parts, str) else [part.reasoning for part in parts if part.type == "reasoning"]
    )
    reasoning = "".join(thoughts) if thoughts else None
    return Question(**state.metadata).answer(with_reasoning(reasoning, state.output.completion))


@scorer(metrics={"*": [mean(), stderr()]})
def judged(scheme: str) -> Scorer:
    """The reward, and whether the move is legal (or the line well-formed)."""

    async def score(state: TaskState, target: Target) -> Score:
        client = RewardClient(scheme=scheme)
        [verdict] = await client.ascore([_answer(state)])
        value = {"reward": verdict.reward, "legal": float(verdict.legal)}
        metadata = {"regret": verdict.regret, "reward_version": verdict.reward_version}
        return Score(value=value, answer=verdict.move, explanation=verdict.outcome, metadata=metadata)

    return score


@metric
def same_move() -> Metric:
    """How often the move is that of the same position as it is, of pairs where either is legal."""

    def share(scores: list[SampleScore]) -> float:
        return _same_move(map(_changed, scores))

    return share


@metric
def legal_change() -> Metric:
    """The share of legal moves in changed forms, less that of the same positions as they are."""

    def difference(scores: list[SampleScore]) -> float:
        return _legal_change(map(_changed, scores))

    return difference


def _changed(sample: SampleScore) -> ChangedAnswer:
    metadata = sample.score.metadata or {}
    return ChangedAnswer(str(sample.sample_id), metadata["original"], metadata["same_move"], metadata["move"])


@scorer(metrics=[mean(), stderr(), legal_change(), same_move()])
def unchanged() -> Scorer:
    """1 for a legal move, else 0."""

    async def score(state: TaskState, target: Target) -> Score:
        [verdict] = await RewardClient().ascore([_answer(state)])
        move = verdict.move if verdict.legal else None
        metadata = {name: state.metadata[name] for name in ("form", "original", "same_move")}
        return Score(value=float(verdict.legal), answer=move, metadata={**metadata, "move": move})

    return score


@metric
def solved() -> Metric:
    """The share of puzzles whose moves are all right; a mate ends a puzzle."""

    def share(scores: list[SampleScore]) -> float:
        puzzles: dict[str, list[tuple[int, Score]]] = defaultdict(list)
        for sample in scores:
            puzzle, _, turn = str(sample.sample_id).rpartition(":")
            puzzles[puzzle].append((int(turn), sample.score))
        return sum(map(_is_solved, puzzles.values())) / len(puzzles)

    return share


def _is_solved(turns: list[tuple[int, Score]]) -> bool:
    for _, score in sorted(turns, key=lambda turn: turn[0]):
        if not score.as_float():
            return False
        if (score.metadata or {})["mate"]:
            return True
    return True


@scorer(metrics=[mean(), stderr(), solved()])
def right_move() -> Scorer:
    """1 for the solution's move or a mate, else 0. The service reads both, so notation does not matter."""

    async def score(state: TaskState, target: Target) -> Score:
        answers = _answer(state), Question(**state.metadata).solved()
        played, right = await RewardClient().ascore(answers)
        is_right = played.legal and (played.move == right.move or played.mates)
        return Score(value=float(is_right), answer=played.move, metadata={"mate": played.mates})

    return score
