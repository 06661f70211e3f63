"""How much the answers of a batch differ, against figures worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace

import chess
import pytest

from rookery.trace import Move, Outcome, TraceGroup
from services.trainer.records.describe import exploration
from tests.builders import changed
from tests.unit.trainer.groups import make_group

START = chess.STARTING_FEN


def group(*answers: tuple[str, str | None], best: str = "e2e4", fen: str = START) -> TraceGroup:
    """A group with these texts and legal moves (None: an illegal answer)."""
    made = make_group(0, size=len(answers))
    traces = []
    for trace, (text, move) in zip(made.traces, answers, strict=True):
        completion = replace(trace.completion, text=text, token_ids=tuple(text.encode()))
        judged = (
            {"move": Move(move, move), "best": Move(best, best)} if move else {"outcome": Outcome.ILLEGAL}
        )
        traces.append(changed(trace, completion=completion, verdict=replace(trace.verdict, **judged)))
    return replace(made, prompt=replace(made.prompt, fen=fen), traces=tuple(traces))


@pytest.mark.parametrize(
    ("texts", "share"), [("abcd", 0.0), ("aabc", 0.5), ("aabb", 1.0), ("aaaa", 1.0), ("aaab", 0.75)]
)
def test_identical_answers(texts: Sequence[str], share: float) -> None:
    assert exploration([group(*((text, None) for text in texts))])["identical_answers"] == share


def test_answers_of_different_groups_are_not_compared() -> None:
    groups = [group(("a", None), ("b", None)), group(("a", None), ("b", None))]
    assert exploration(groups)["identical_answers"] == 0.0


def test_distinct_candidates_are_a_mean_over_answers_that_name_some() -> None:
    batch = [
        group(
            ("<think>e2e4 e2e4 e2e4</think>\\boxed{e2e4}", "e2e4"),
            ("<think>e2e4 d2d4</think>\\boxed{e2e4}", "e2e4"),
            ("\\boxed{e2e4}", "e2e4"),
        )
    ]
    assert exploration(batch)["distinct_candidates"] == pytest.approx((1 / 3 + 1) / 2)
    assert "distinct_candidates" not in exploration([group(("\\boxed{e2e4}", "e2e4"))])


def test_moves_by_piece_are_compared_with_the_best_moves_at_the_same_positions() -> None:
    batch = [
        group(("a", "g1f3"), ("b", "b1c3"), ("c", "d2d4"), ("d", None)),
        group(("a", "e8e7"), best="e8d8", fen="4k3/8/8/8/8/8/8/4K3 b - - 0 1"),
    ]
    found = exploration(batch)
    assert [found[f"moves_{piece}"] for piece in ("pawn", "knight", "king", "queen")] == [
        0.25,
        0.5,
        0.25,
        0.0,
    ]
    assert [found[f"best_moves_{piece}"] for piece in ("pawn", "knight", "king")] == [0.75, 0.0, 0.25]
    assert found["piece_distance"] == 0.5
    assert exploration([group(("a", "e2e4"), ("b", "e2e4"))])["piece_distance"] == 0.0


def test_a_batch_without_legal_moves_has_no_pieces() -> None:
    assert exploration([group(("a", None), ("b", None))]) == {"identical_answers": 0.0}
