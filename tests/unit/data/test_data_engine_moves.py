"""Candidates drawn by the engine's opinion, the best of them chosen, and that opinion as soft targets."""

import asyncio
import math
from collections import Counter
from dataclasses import dataclass, replace

import chess
import pytest

from chess_datasets.positions.numbered import after_random_moves
from chess_datasets.tasks.engine_moves import CandidateTargets, engine_moves, probabilities
from chess_datasets.tasks.example import Example
from commentary import read
from rookery.candidates import candidates_of, stated_evaluations
from rookery.episodes import environment
from rookery.trace import Completion, Evaluation, Position, Turn, Verdict
from rookery.uci import Analysis, Line, Query
from tests.builders import position

FEN = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
ANALYSIS = Analysis(
    (
        Line(Evaluation(mate=1), ("a1a8",)),
        Line(Evaluation(cp=300), ("g1f2",)),
        Line(Evaluation(cp=0), ("a1b1",)),
    ),
    1000,
)
TARGETS = CandidateTargets(lines=3, temperature=0.05, best=0.3, uniform=0.1)


@dataclass
class Known:
    """Engines that say the same of every position."""

    analysis: Analysis

    async def search(self, query: Query) -> Analysis:
        assert (query.fen, query.nodes, query.lines) == (FEN, 1000, 3)
        return self.analysis


def examples(
    *positions: Position,
    style: str = "mover-squares",
    targets: CandidateTargets = TARGETS,
    analysis: Analysis = ANALYSIS,
) -> list[Example]:
    async def collect() -> list[Example]:
        made = [
            await engine_moves(one, Known(analysis), style=style, nodes=1000, targets=targets, seed=3)
            for one in positions
        ]
        return [example for example in made if example]

    return asyncio.run(collect())


def test_probabilities_are_shared_as_the_module_says() -> None:
    """The first move mates in one, which counts as 0.2 more."""
    weights = probabilities(chess.Board(FEN), ANALYSIS, TARGETS)
    legal = {move.uci() for move in chess.Board(FEN).legal_moves}
    assert set(weights) == legal
    assert sum(weights.values()) == pytest.approx(1)
    soft = {move: weight - 0.1 / len(legal) for move, weight in weights.items()}
    soft["a1a8"] -= 0.3
    win = {"a1a8": 0.97545 + 0.2, "g1f2": 0.75112, "a1b1": 0.5}
    assert math.log(soft["a1a8"] / soft["g1f2"]) == pytest.approx(
        (win["a1a8"] - win["g1f2"]) / 0.05, abs=1e-3
    )
    assert soft["a1c1"] == pytest.approx(soft["a1b1"] * math.exp(-0.1 / 0.05))


def test_the_best_candidate_is_chosen_and_each_comes_with_what_was_left() -> None:
    chosen: Counter[str] = Counter()
    for example in examples(*(position(FEN, str(number)) for number in range(200))):
        drawn = example.answer.removeprefix("<think>").partition("</think>")[0].split()
        assert len(set(drawn)) == 3
        ranked = [move for move in ("a1a8", "g1f2", "a1b1") if move in drawn]
        assert example.answer.endswith(f"</think>\\boxed{{{(ranked or drawn)[0]}}}")
        for number, (move, part) in enumerate(zip(drawn, example.alternatives, strict=True)):
            assert example.answer[part.start : part.end] == move
            assert not set(drawn[:number]) & set(part.texts)
            assert len(part.texts) == len(part.weights) == chess.Board(FEN).legal_moves.count() - number
        chosen[drawn[0]] += 1
    assert chosen["a1a8"] / 200 == pytest.approx(
        probabilities(chess.Board(FEN), ANALYSIS, TARGETS)["a1a8"], abs=0.1
    )


def test_lines_have_the_best_reply_and_a_value_and_the_best_of_them_is_chosen() -> None:
    """One move mates, and one has a line that ends before the reply, so it has no value. Of the mates in 2
    and 3, which have the same value, the quicker one is chosen."""
    targets = replace(TARGETS, line_counts=(0, 1, 3))
    replied = Analysis(
        (
            Line(Evaluation(mate=1), ("a1a8",)),
            Line(Evaluation(mate=2), ("g1f2", "g8f8", "a1a7")),
            Line(Evaluation(cp=0), ("a1b1",)),
            Line(Evaluation(mate=3), ("a1c1", "h7h6")),
        ),
        1000,
    )
    texts = {"a1a8": "a1a8 100%", "g1f2": "g1f2 g8f8 97%", "a1c1": "a1c1 h7h6 97%"}
    made = examples(*(position(FEN, str(n)) for n in range(100)), targets=targets, analysis=replied)
    assert {example.answer.partition(" ")[0] for example in made if " " in example.answer} == {
        "<think>1",
        "<think>3",
    }
    for example in made:
        candidates = candidates_of(example.answer, chess.Board(FEN))
        drawn = [candidate.move for candidate in candidates]
        if not drawn:
            assert example.answer.startswith("<think></think>\\boxed{")
            assert len(example.alternatives) == 1
            continue
        best = next(move for move in texts if move in drawn)
        lines = " ".join(texts[move] for move in drawn)
        assert example.answer == f"<think>{len(drawn)} {lines}</think>\\boxed{{{best}}}"
        stated = stated_evaluations(example.answer, chess.Board(FEN))
        assert [stated[move].value for move in drawn] == [int(texts[m].split()[-1][:-1]) / 100 for m in drawn]
        for part in example.alternatives:
            assert example.answer[part.start : part.end] in part.texts
    assert {len(candidates_of(example.answer, chess.Board(FEN))) for example in made} == {0, 1, 3}


def test_remarks_are_true_and_each_comes_with_all_that_could_be_said_instead() -> None:
    targets = replace(TARGETS, remarks=2)
    said = set[str]()
    for plain, example in zip(
        examples(*(position(FEN, str(number)) for number in range(30))),
        examples(*(position(FEN, str(number)) for number in range(30)), targets=targets),
        strict=True,
    ):
        remarks, _, rest = example.answer.removeprefix("<think>").partition("\n")
        moves, _, reason = rest.partition("</think>")
        assert plain.answer.startswith(f"<think>{moves}</think>")
        assert example.answer.endswith(plain.answer.partition("</think>")[2])
        assert reason.startswith(example.answer[-5:-1])
        claims = read(FEN, example.answer).claims
        assert len(claims) >= 3
        assert all(claim.true for claim in claims)
        first, second, *moved, last = example.alternatives
        assert example.answer[first.start : second.end] == remarks
        assert len(moved) == 3
        for part in example.alternatives:
            assert example.answer[part.start : part.end] in part.texts
        assert not set(second.texts) & {f" {example.answer[first.start : first.end]}"}
        assert all(text.startswith(" ") and text.endswith(".") for text in (*second.texts, *last.texts))
        said.add(remarks)
    assert len(said) > 10


def test_every_legal_move_keeps_a_probability_however_sharp_the_targets_are() -> None:
    sharp = replace(TARGETS, temperature=0.03, best=0.35, uniform=0.0002)
    for example in examples(*(position(FEN, str(number)) for number in range(20)), targets=sharp):
        assert all(min(part.weights) > 0 for part in example.alternatives)


def test_moves_are_those_of_the_board_that_is_shown() -> None:
    black = chess.Board(FEN).mirror().fen()
    [mirrored], [plain] = examples(position(black)), examples(position(black), style="fen")
    assert examples(position(FEN))[0].answer == mirrored.answer
    assert "a8a1" in plain.alternatives[0].texts
    assert mirrored.fen == plain.fen == black


def test_positions_stray_from_their_games_by_legal_moves_and_never_end() -> None:
    far = [after_random_moves(position(id=str(n)), share=0.5, seed=1) for n in range(100)]
    assert 30 < sum(one.fen != chess.STARTING_FEN for one in far) < 70
    for one in far:
        board = chess.Board()
        for move in one.last_moves:
            board.push_uci(move)
        assert (board.fen(), one.ply) == (one.fen, len(one.last_moves))
        assert one.ply <= 3
    mate = "7k/8/6K1/8/8/8/8/R7 w - - 0 1"
    ends = [after_random_moves(position(mate, str(n)), share=1, seed=1) for n in range(50)]
    assert not any(chess.Board(one.fen).is_game_over() for one in ends)


def test_a_share_of_the_answers_calls_a_tool() -> None:
    """The others follow the call. The prompts are those of the episode."""
    targets = replace(TARGETS, call_share=0.4)
    made = examples(*(position(FEN, str(n)) for n in range(40)), style="fen", targets=targets)
    calls = [example for example in made if example.answer == "<tool>legal_moves</tool>"]
    assert 8 <= len(calls) <= 24
    tools = environment("tools")
    first = tools.reset(position(FEN), style="fen", seed=0, judge=no_judge)
    assert all(example.prompt == first.messages and not example.alternatives for example in calls)
    call = Completion("<tool>legal_moves</tool>", (), (), "stop", 0)
    second = asyncio.run(tools.step(Turn(call, None))).prompt
    assert second is not None
    others = [example for example in made if example not in calls]
    assert all(example.prompt == second.messages and example.alternatives for example in others)


async def no_judge(fen: str, text: str) -> Verdict:
    raise AssertionError
