"""ChessQA: what counts as the answer, how it is scored, and the reference that knows the rules."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd

from arena.answer_store import open_answers
from arena.asking import Asker
from arena.chessqa_rules import rule_based_answer
from arena.players.model import ModelPlayer
from arena.players.player import RandomPlayer
from arena.sections.chessqa import RULES, ChessQA, ChessQAQuestion, final_answer
from rookery.clients import InferenceClient, RewardClient
from rookery.errors import InvalidInput
from rookery.trace import Completion, Prompt, Sampling

FEN = "4k3/8/8/8/8/8/4R3/4K3 b - - 0 1"
SINGLE = {
    "task_id": "judge_0", "task_type": "position_judgement_winning", "task_category": "Position Judgement",
    "input": FEN, "question": f"Look at {FEN}.\nCONTEXT_PLACEHOLDEREvaluate, as FORMAT_EXAMPLE_PLACEHOLDER.",
    "format_examples": ["400", "-200"], "correct_answer": "400", "answer_type": "single",
    "metadata": {"options": [-400, 0, 400]},
}  # fmt: skip
MULTI = {
    "task_id": "moves_0", "task_type": "structural_legal_move_all", "task_category": "Structural",
    "input": FEN,
    "question": "All moves of CONTEXT_PLACEHOLDER?", "format_examples": ["e2e4"],
    "correct_answer": "e8d7, e8d8, e8f7, e8f8", "answer_type": "multi", "metadata": {},
}  # fmt: skip


class ScriptedModel(ModelPlayer):
    """Answers each question with the same text, of as many tokens as it has words, and counts those of
    `answers` answers."""

    answers = 1

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        text = self.source
        count = len(text.split())
        return (Completion(text, (7,) * count * self.answers, (-1.0,) * count, "stop", seed),)


class SelectedAnswer(ScriptedModel):
    """As of a player that answers 40 times."""

    answers = 40


def model(text: str) -> ScriptedModel:
    client = InferenceClient("http://127.0.0.1:9")
    return ScriptedModel("model", client, "m", "fen", Sampling(max_tokens=100), source=text)


def questions(tmp_path: Path, *lines: dict[str, object] | str, context: bool = False) -> ChessQA:
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return ChessQA.read([path], count=2, context=context, seed=0)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("FINAL ANSWER: 400", "400"),
        ("Final answer: 0\nNo:\nfinal answer:  **400** \nThat is it.", "400"),
        ("<think>FINAL ANSWER: 0</think>FINAL ANSWER: 400", "400"),
        (r"The final answer is $\boxed{400}$.", "400"),
        (r"FINAL ANSWER: 0. The final answer is \boxed{400}", r"0. The final answer is \boxed{400}"),
        (r"\boxed{400}", None),
        ("It is 400.", None),
        ("", None),
        # Made up, with what the extractor of the benchmark gives for each:
        ("FINAL ANSWER: 400\nFINAL ANSWER:", "400"),
        ("FINAL ANSWER: 400\nFINAL ANSWER: ", ""),
        ("FINAL ANSWER: 400\nFINAL ANSWER:\n", ""),
        ("FINAL ANSWER: Final Answer: 400", "400"),
        ("FINAL ANSWER:\n\n400\nmore", "400"),
        ("FINAL ANSWER: **", ""),
        ("The final answer is \\boxed{4\n00}", "4\n00"),
    ],
)
def test_the_answer_of_a_text(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("e8f8, E8D7,e8d8 , e8f7", "right"),
        ("e8d7, e8d8, e8f7, e8f8, e8e7", "extra"),
        ("e8d7, e8d8", "missing"),
        ("e8d7, e8e7", "false"),
        ("e8d7 e8d8 e8f7 e8f8", "false"),
        ("", "missing"),
        (None, "no answer"),
    ],
)
def test_several_answers_are_a_set(answer: str | None, result: str) -> None:
    assert ChessQAQuestion.model_validate(MULTI).result(answer) == result


@pytest.mark.parametrize(("answer", "result"), [("400", "right"), ("+400", "wrong"), (None, "no answer")])
def test_a_single_answer_is_compared_as_a_text(answer: str | None, result: str) -> None:
    assert ChessQAQuestion.model_validate(SINGLE).result(answer) == result


C1_TEXT = f"""\
You are given a chess position in FEN: {FEN}.
Piece positions: White King: ['e1'], White Rook: ['e2'], Black King: ['e8']
Legal moves: e8f8, e8d8, e8f7, e8d7
Find the best move for the side to play.
Analyze step by step and explain your reasoning.
Finish with a single line formatted EXACTLY as:
FINAL_ANSWER: <answer>
Use UCI notation (e.g., e2e4, c2b1q) for the final answer."""


async def test_c1_asks_and_reads_as_c1_does(tmp_path: Path) -> None:
    tactic = {**SINGLE, "task_id": "t", "task_type": "short_tactics_rating_expert", "correct_answer": "e8d7"}
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, (tactic, SINGLE, MULTI))))
    chessqa = ChessQA.read([path], count=2, context=False, seed=0, protocol="c1")
    assert [question.c1_prompt().messages[0].content for question in chessqa.questions] == [C1_TEXT]
    with open_answers(tmp_path / "answers.jsonl") as store:
        asker = Asker(store, RewardClient("dns:///127.0.0.1:9"), "", temperature=1.0, seed=0, concurrency=2)
        results = [
            (await chessqa.ask(asker, model(text)))[0].result
            for text in (
                "FINAL_ANSWER: e8d7, or FINAL_ANSWER: e8f8",
                "final_answer:E8D7q",
                "FINAL_ANSWER: e8f8\nFINAL_ANSWER: e8d7",
                "FINAL ANSWER: e8d7",
                "FINAL_ANSWER: e8d7 " + "and " * 98,
            )
        ]
    assert results == ["right", "wrong", "wrong", "no answer", "right"]
    path.write_text(json.dumps(MULTI))
    with pytest.raises(InvalidInput, match=r"no short tactics, which c1 asks for, in .*questions\.jsonl"):
        ChessQA.read([path], count=2, context=False, seed=0, protocol="c1")


def test_the_placeholders_are_filled() -> None:
    question = ChessQAQuestion.model_validate(SINGLE)
    assert question.prompt(context=False).messages[0].content == f"Look at {FEN}.\nEvaluate, as 400."
    known = question.prompt(context=True).messages[0].content
    assert (
        "Piece arrangement: White King: ['e1'], White Rook: ['e2'], Black King: ['e8']\nLegal moves: e8d7, "
        in known
    )


async def test_the_section_counts_by_category_and_error(tmp_path: Path) -> None:
    chessqa = questions(tmp_path, SINGLE, MULTI, {**MULTI, "task_id": "moves_1"})
    sides = {}
    with open_answers(tmp_path / "answers.jsonl") as store:
        asker = Asker(store, RewardClient("dns:///127.0.0.1:9"), "", temperature=1.0, seed=0, concurrency=2)
        player = model("FINAL ANSWER: 400")
        sides["right"] = await chessqa.ask(asker, player)
        assert await chessqa.ask(asker, model(r"Thus \boxed{400}")) != sides["right"]
        sides["boxed"] = await chessqa.ask(asker, model(r"Thus \boxed{400}"))
        cut = replace(player, sampling=Sampling(max_tokens=3))
        sides["cut"] = await chessqa.ask(asker, cut)
        several = SelectedAnswer(**{**vars(player), "opening": "several"})
        assert {(r.result, r.tokens) for r in await chessqa.ask(asker, several)} == {
            ("right", 120),
            ("false", 120),
        }
        terse = replace(player, style="mover-twice", source="model:rook-small")
        assert await chessqa.ask(asker, RandomPlayer()) == await chessqa.ask(asker, terse) == []
        assert not chessqa.names(terse)
        sides["random"] = []
    section = chessqa.section(sides, players=list(sides))
    tables = {table.name: {row.metric.name: row for row in table.rows} for table in section.tables}
    metrics = tables["metrics"]

    def mean(name: str, player: str) -> float | None:
        return metrics[name].cells[player].estimate.mean

    assert [mean("right", side) for side in ("right", "boxed", "cut")] == [1 / 3, 0, 0]
    assert [mean("boxed", side) for side in ("right", "boxed", "cut")] == [1 / 3, 1 / 3, 0]
    assert mean("result/false", "right") == 2 / 3
    assert mean("result/no answer", "boxed") == 1
    assert mean("result/cut", "cut") == 1
    assert mean("right", RULES) == 1, "a rook up is 500, the nearest option 400"
    assert mean("tokens", "right") == 3
    assert "random" not in metrics["right"].cells
    assert tables["category"]["category/Structural"].cells["right"].estimate.mean == 0
    assert tables["kind"]["kind/position_judgement_winning"].cells["right"].estimate.mean == 1


def test_lines_that_are_no_questions_are_named(tmp_path: Path) -> None:
    chessqa = questions(
        tmp_path, "{", {**SINGLE, "input": "x"}, {**SINGLE, "answer_type": "some"}, *[MULTI] * 3
    )
    assert [question.id for question in chessqa.questions] == ["moves_0", "moves_0"], "two of each type"
    assert [line.partition(" ")[0] for line in chessqa.report.skipped] == [
        "questions.jsonl:1:", "questions.jsonl:2:", "questions.jsonl:3:"
    ]  # fmt: skip
    assert "'single' or 'multi' (got 'some')" in chessqa.report.skipped[2]
    with pytest.raises(InvalidInput, match=r"no questions of ChessQA in '.*': questions.jsonl:1"):
        questions(tmp_path, "{}")
    with pytest.raises(InvalidInput, match="it is empty"):
        questions(tmp_path, "")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({**SINGLE, "metadata": {"options": []}}, "empty"),
        ({**SINGLE, "metadata": {"options": ["A"]}}, "unsupported operand"),
        ({**SINGLE, "metadata": {"options": 4}}, "'int' object is not iterable"),
        ({**SINGLE, "metadata": {"options": [0], "more": "x" * 200_000}}, "characters, more than 200,000"),
        ({**SINGLE, "metadata": []}, "metadata: Input should be .*got"),
        ({**MULTI, "task_type": "legal_move_piece", "metadata": {"target_square": 5}}, "5 is not in"),
        ({**MULTI, "task_type": "state_tracking", "input": f"{FEN} | e2e4"}, "illegal uci: 'e2e4'"),
        ({**MULTI, "task_type": "short_tactics", "input": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}, "no legal move"),
    ],
)  # fmt: skip
def test_questions_that_the_rules_cannot_read_are_refused_before_a_model_is_asked(
    tmp_path: Path, line: dict[str, object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=f"questions.jsonl:1: .*{why}"):
        questions(tmp_path, line)


def test_files_of_the_same_type_and_lines_with_other_separators_are_read(tmp_path: Path) -> None:
    for number in range(2):
        line = {**MULTI, "task_id": f"moves_{number}", "question": "All moves?\u2028\x85"}
        (tmp_path / f"{number}.jsonl").write_text(
            json.dumps(line, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    paths = [tmp_path / f"{number}.jsonl" for number in range(2)]
    chessqa = ChessQA.read(paths, count=2, context=False, seed=0)
    assert [question.id for question in chessqa.questions] == ["moves_0", "moves_1"]
    assert chessqa.report.skipped_count == 0


@pytest.mark.shared_data
def test_the_rules_agree_with_the_key(shared_data: Path) -> None:
    packed = shared_data / "chessqa" / "structural.jsonl.zst"
    lines = zstd.decompress(packed.read_bytes()).decode().splitlines()
    structural = [ChessQAQuestion.model_validate_json(line) for line in lines]
    wrong = [q.id for q in structural if q.result(rule_based_answer(q.kind, q.input, q.metadata)) != "right"]
    assert len(structural) == 1100
    assert wrong == [  # the key has moves of a pinned piece, against its question
        "structural_capture_squares_0035",
        "structural_control_squares_0019",
        "structural_control_squares_0055",
        "structural_control_squares_0071",
    ]
