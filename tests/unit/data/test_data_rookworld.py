"""Lines with repaired labels: the best move of either colour, true legality, and enough of what is rare."""

import random
from collections.abc import Sequence
from functools import cache
from itertools import islice

import chess
import pytest

from chess_datasets.jobs import as_completed
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.rookworld import (
    MIX,
    RookworldMix,
    assign_task,
    illegal_move,
    illegal_moves,
    labelled_line,
    policy_line,
    policy_query,
    state_line,
)
from rookery import rookworld
from rookery.errors import EngineFault, Quarantined
from rookery.rookworld import PolicyLine, StateLine
from rookery.trace import Evaluation, Position
from rookery.uci import Analysis, Line, Query
from tests import rookworld_lines
from tests.builders import position

HISTORY = ("e2e4", "e7e5")
FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
CP = {"f1b5": 40, "f1c4": 35, "d2d4": 30, "b1c3": 20, "c2c3": -5}


def analysis(scores: dict[str, int], nodes: int = 1000) -> Analysis:
    return Analysis(tuple(Line(Evaluation(cp=cp), (uci,)) for uci, cp in scores.items()), nodes)


def flipped(uci: str) -> str:
    return "".join(str(9 - int(c)) if c.isdigit() else c for c in uci)


def test_the_best_move_has_the_highest_evaluation() -> None:
    line = policy_line(FEN, analysis(CP), random.Random(1)).answer
    assert dict(zip(line.moves, line.evals, strict=True)) == {uci: cp / 100 for uci, cp in CP.items()}
    assert line.best == "f1b5"


def test_black_s_best_move_is_the_best_for_black() -> None:
    mirrored = chess.Board(FEN).mirror().fen()
    assert policy_query(mirrored, nodes=1000) == policy_query(FEN, nodes=1000)
    line = policy_line(mirrored, analysis(CP), random.Random(1)).answer
    assert line.best == flipped("f1b5")
    assert max(line.evals) == line.evals[line.moves.index(line.best)]
    assert set(line.moves) == {flipped(uci) for uci in CP}


def test_moves_come_in_no_order_but_the_same_for_the_same_seed() -> None:
    orders = {policy_line(FEN, analysis(CP), random.Random(seed)).answer.moves for seed in range(20)}
    assert len(orders) > 10
    assert policy_line(FEN, analysis(CP), random.Random(3)) == policy_line(
        FEN, analysis(CP), random.Random(3)
    )


def test_fewer_legal_moves_are_all_asked_for() -> None:
    fen = "7k/8/8/8/8/8/6r1/7K w - - 0 1"
    assert policy_query(fen, nodes=1000).lines == 1
    assert policy_line(fen, analysis({"h1g2": 0}), random.Random(1)).answer.moves == ("h1g2",)


def test_a_search_too_short_for_five_moves_is_a_fault() -> None:
    with pytest.raises(EngineFault, match="2 of 5 moves judged in 7 nodes"):
        policy_line(FEN, analysis({"f1b5": 40, "f1c4": 30}, nodes=7), random.Random(1))


def drawn(mix: RookworldMix, fens: list[str]) -> list[StateLine]:
    return [
        state_line(position(fen, last_moves=HISTORY), random.Random(number), mix=mix)
        for number, fen in enumerate(fens)
    ]


@cache
def fens() -> list[str]:
    return [generated.fen for generated in map(PositionGenerator(seed=5).position, range(30))]


def test_legal_lines_are_legal_and_carry_the_history() -> None:
    for line in drawn(RookworldMix(illegal=0.0), fens()):
        assert chess.Move.from_uci(line.move) in chess.Board(line.fen).legal_moves
        assert line.recent == ("e2e4", "e7e5", line.move)
        assert not line.answer.truncated


def test_illegal_lines_leave_the_board_and_are_truncated() -> None:
    for line in drawn(RookworldMix(illegal=1.0), fens()):
        assert chess.Move.from_uci(line.move) not in chess.Board(line.fen).legal_moves
        assert (line.answer.next_fen, line.answer.reward, line.answer.truncated) == (line.fen, -1.0, True)


def test_moves_that_end_the_game_are_preferred_where_there_are_any() -> None:
    assert {line.move for line in drawn(RookworldMix(illegal=0.0, ending=1.0), [MATE_IN_ONE] * 10)} == {
        "a1a8"
    }
    assert len({line.move for line in drawn(RookworldMix(illegal=0.0, ending=0.0), [MATE_IN_ONE] * 10)}) > 1


@pytest.mark.parametrize(
    ("fen", "kind"),
    [
        pytest.param("4r1k1/8/8/8/8/8/4R3/4K3 w - - 0 1", "e2a2", id="a pinned rook"),
        pytest.param("5rk1/8/8/8/8/8/8/4K2R w K - 0 1", "e1g1", id="castling through check"),
        pytest.param("6k1/8/8/8/8/8/8/4K2R w - - 0 1", "e1g1", id="castling without the right"),
        pytest.param("6k1/8/8/8/8/8/r7/4K3 w - - 0 1", "e1e2", id="the king into check"),
        pytest.param("6k1/8/8/8/8/8/r7/4K3 w - - 0 1", "a2a1", id="a piece of the other side"),
        pytest.param("6k1/8/8/8/8/8/r7/4K3 w - - 0 1", "e1e3", id="as the piece does not go"),
        pytest.param("6k1/8/8/8/8/8/r7/4K3 w - - 0 1", "d4d5", id="from an empty square"),
    ],
)
def test_illegal_moves_are_of_every_kind(fen: str, kind: str) -> None:
    assert kind in {move.uci() for moves in illegal_moves(chess.Board(fen)) for move in moves}


def test_illegal_moves_are_never_legal() -> None:
    rng = random.Random(2)
    for fen in fens():
        board = chess.Board(fen)
        for _ in range(3):
            move = chess.Move.from_uci(illegal_move(board, rng))
            assert move not in board.legal_moves


class Table:
    """Engines that judge by a table, and die over one position."""

    def __init__(self, deadly: str = "") -> None:
        self.asked: list[Query] = []
        self._deadly = deadly

    async def search(self, query: Query) -> Analysis:
        self.asked.append(query)
        if query.fen == self._deadly:
            raise Quarantined(f"it has cost two engines: {query.fen!r}")
        legal = sorted(chess.Board(query.fen).legal_moves, key=chess.Move.uci)
        return analysis({move.uci(): -number for number, move in enumerate(legal[: query.lines])})


async def lines(
    positions: Sequence[Position], table: Table | None = None, *, seed: int = 0, mix: RookworldMix = MIX
) -> list[PolicyLine | StateLine | None]:
    engines = table or Table()
    return [await labelled_line(one, engines, nodes=1000, seed=seed, mix=mix) for one in positions]


@cache
def positions() -> list[Position]:
    return [position(fen, f"p{number}", last_moves=HISTORY) for number, fen in enumerate(fens() * 4)]


async def test_a_fifth_of_the_lines_are_states() -> None:
    made = await lines(positions())
    states = sum(isinstance(line, StateLine) for line in made)
    assert states / len(made) == pytest.approx(0.2, abs=0.08)
    assert [line.fen for line in made if line] == [one.fen for one in positions()]


async def test_a_line_depends_on_its_position_and_the_seed_alone() -> None:
    whole = await lines(positions()[:20], seed=3)
    assert await lines(positions()[19::-1], seed=3) == whole[::-1]
    assert await lines(positions()[:20], seed=4) != whole


async def test_a_position_that_kills_engines_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    deadly = positions()[3]
    table = Table(deadly=policy_query(deadly.fen, nodes=1000).fen)
    made = await lines(positions()[:6], table, mix=RookworldMix(state=0.0))
    assert [one for one, line in zip(positions(), made, strict=False) if line is None] == [deadly]
    assert "left out" in caplog.text


async def test_every_line_survives_its_text() -> None:
    for line in await lines(positions()):
        if isinstance(line, PolicyLine):
            assert rookworld.parse_policy_line(rookworld_lines.policy_line(line)) == line
        elif line:
            assert rookworld.parse_state_line(rookworld_lines.state_line(line)) == line


async def test_an_error_ends_the_work_that_is_under_way() -> None:
    ended: list[int] = []

    async def work(number: int) -> int:
        import asyncio

        try:
            if number == 2:
                raise EngineFault("gone")
            await asyncio.sleep(0 if number < 2 else 60)
        finally:
            ended.append(number)
        return number

    with pytest.raises(EngineFault):
        async for _ in as_completed(range(100), work, limit=8):
            pass
    assert set(ended) == set(range(8))


def test_questions_are_mixed_by_seed_and_position_alone() -> None:
    positions = list(islice(map(PositionGenerator(3, least_moves=2).position, range(300)), 80))
    questions = [assign_task(each, seed=1) for each in positions]
    states = [question for question in questions if question.task == "A"]
    assert {question.task for question in questions} == {"P", "A"}
    assert 8 < len(states) < 28
    assert all(bool(question.move) == (question.task == "A") for question in questions)
    assert [assign_task(each, seed=1) for each in reversed(positions)] == questions[::-1]
    assert [assign_task(each, seed=2) for each in positions] != questions
    illegal = RookworldMix(state=1.0, illegal=1.0)
    for each in positions[:50]:
        board = chess.Board(each.fen)
        assert chess.Move.from_uci(assign_task(each, seed=1, mix=illegal).move) not in board.legal_moves
        assert assign_task(each, seed=1, mix=RookworldMix(state=0.0)).task == "P"


async def test_a_question_is_that_of_the_data_set_s_line() -> None:
    """What a policy is asked in a run is what `data tasks rookworld` would have labelled."""
    each = position(FEN, "some", last_moves=HISTORY)
    for seed in range(30):
        question = assign_task(each, seed=seed, mix=MIX)
        rng = random.Random(f"{seed}:{each.id}")
        if question.task == "A":
            assert rng.random() < MIX.state
            assert state_line(each, rng).move == question.move
