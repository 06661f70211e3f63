"""Which pair a position gives, and how the work on many of them stays in order."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import chess
import pytest

from chess_datasets.commands.engines import WorkerScorer
from chess_datasets.jobs import as_completed
from chess_datasets.pairs.dataset import MAX_PARTS_WITHOUT_PAIR, FinishedParts, PairMaker
from chess_datasets.pairs.preference import (
    PAIRS,
    NoPair,
    Origin,
    Pair,
    PairRecipe,
    PairRequest,
    pair_of,
    pair_request,
    without_repeats,
)
from chess_datasets.positions.numbered import PART_SIZE, NumberedPositions
from chess_datasets.store.datasets import Parts
from chess_datasets.store.folders import open_folder
from rookery.clients import ScoreItem
from rookery.errors import InvalidInput, PeerFault, SetupError
from rookery.processes.workers import Workers
from rookery.prompt import render
from rookery.trace import Completion, EngineStamp, Move, Outcome, Phase, Position, Verdict

START = Position("p:1:0", chess.STARTING_FEN, 0, Phase.OPENING, "game")
RECIPE = PairRecipe(style="fen", min_gap=0.1, max_gap=0.5)
BEST = Move("e2e4", "e4")


def completion(text: str) -> Completion:
    return Completion(text, (1,), (-0.5,), "stop", 1)


def verdict(move: str, gap: float) -> Verdict:
    return Verdict(
        reward=-gap,
        outcome=Outcome.LEGAL,
        reward_version="delta-1",
        move=Move(move, move),
        best=BEST,
        win_before=0.75,
        win_after=0.75 - gap,
        regret=gap,
    )


ILLEGAL = Verdict(-1.2, Outcome.ILLEGAL, "delta-1")


def made(*own: Verdict, drawn: list[Verdict]) -> Pair | NoPair:
    answers = [completion(f"I like it {i}") for i in range(len(own))]
    asked = pair_request(
        0, START, replace(RECIPE, candidates=len(drawn)), answers=answers, policy="policy-v000007"
    )
    return pair_of(asked, [*own, *drawn], RECIPE)


def test_the_policy_s_own_weaker_move_is_rejected() -> None:
    pair = made(verdict("e2e4", 0.0), verdict("a2a3", 0.25), drawn=[verdict("h2h4", 0.15)])
    assert isinstance(pair, Pair)
    assert (pair.chosen_move, pair.rejected_move.uci) == (BEST, "a2a3")
    assert (pair.win_chosen, pair.win_rejected, pair.gap) == (0.75, 0.5, 0.25)
    assert (pair.origin, pair.policy, pair.policy_text) == (Origin.POLICY, "policy-v000007", "I like it 1")


def test_both_answers_have_one_form() -> None:
    pair = made(verdict("a2a3", 0.2), drawn=[])
    assert isinstance(pair, Pair)
    assert [m.content for m in (*pair.chosen, *pair.rejected)] == ["\\boxed{e2e4}", "\\boxed{a2a3}"]
    assert pair.prompt == render(START, style="fen").messages


def test_what_it_plays_most_often_counts() -> None:
    own = [verdict("a2a3", 0.2), verdict("h2h4", 0.3), verdict("h2h4", 0.3)]
    pair = made(*own, drawn=[])
    assert isinstance(pair, Pair)
    assert pair.rejected_move.uci == "h2h4"
    assert pair.policy_text == "I like it 1"


@pytest.mark.parametrize("own", [[ILLEGAL], [verdict("e2e4", 0.0)], [verdict("f2f3", 0.6)], []])
def test_where_the_policy_has_none_a_mediocre_move_is_sampled(own: list[Verdict]) -> None:
    drawn = [verdict("f2f3", 0.4), verdict("a2a3", 0.2), verdict("d2d4", 0.01), verdict("g2g4", 0.7)]
    pair = made(*own, drawn=drawn)
    assert isinstance(pair, Pair)
    assert (pair.rejected_move.uci, pair.origin, pair.policy, pair.policy_text) == (
        "a2a3", Origin.SAMPLED, "", "",
    )  # fmt: skip


def test_a_position_without_a_weaker_move_gives_none() -> None:
    assert made(ILLEGAL, drawn=[verdict("d2d4", 0.01), verdict("g2g4", 0.7)]) is NoPair.NO_WEAKER_MOVE


def test_a_refused_question_gives_none() -> None:
    asked = pair_request(0, START, RECIPE)
    slots = [verdict("a2a3", 0.2), PeerFault("quarantined"), verdict("a2a3", 0.2), verdict("a2a3", 0.2)]
    assert pair_of(asked, slots, RECIPE) is NoPair.REFUSED


def test_drawn_moves_are_legal_and_those_of_the_seed() -> None:
    legal = {move.uci() for move in chess.Board().legal_moves}
    first = pair_request(3, START, RECIPE)
    assert len(set(first.drawn)) == RECIPE.candidates
    assert set(first.drawn) <= legal
    assert pair_request(3, START, RECIPE) == first
    assert pair_request(4, START, RECIPE).drawn != first.drawn
    assert pair_request(3, START, replace(RECIPE, seed=1)).drawn != first.drawn


def test_items_are_read_on_the_board_of_the_prompt() -> None:
    black = replace(START, fen="rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")
    asked = pair_request(0, black, replace(RECIPE, style="mover-squares"), answers=[completion("hm")])
    assert {item.fen for item in asked.items()} == {asked.prompt.fen}
    assert asked.prompt.fen.split()[1] == "w"
    assert [item.response for item in asked.items()] == [
        "hm",
        *(f"\\boxed{{{move}}}" for move in asked.drawn),
    ]


def pair(number: int, *, clock: int = 0) -> Pair:
    made_here = made(verdict("a2a3", 0.2), drawn=[])
    assert isinstance(made_here, Pair)
    board = chess.Board()
    board.set_piece_at(number % 64, chess.Piece.from_symbol("Q"))
    board.halfmove_clock = clock
    return replace(made_here, id=f"p{number}", fen=board.fen())


def test_a_position_comes_once_whatever_its_clocks_say() -> None:
    seen: set[int] = set()
    kept = list(without_repeats([pair(20), pair(21), pair(20, clock=9), pair(20)], seen=seen))
    assert [p.id for p in kept] == ["p20", "p21"]
    assert list(without_repeats([pair(21)], seen=seen)) == []


# parts


@pytest.fixture
def parts(tmp_path: Path) -> Parts[Pair]:
    return Parts(open_folder(tmp_path), PAIRS, terms={"seed": 0})


def test_parts_outlive_the_work(parts: Parts[Pair], tmp_path: Path) -> None:
    parts.write(0, [pair(20)], counts={"positions": 3})
    parts.write(2, [], counts={"positions": 1})
    again = Parts(open_folder(tmp_path), PAIRS, terms={"seed": 0})
    assert again.done == {0, 2}
    assert list(again.read(0)) == [pair(20)]
    assert list(again.read(2)) == []
    assert again.counts(0) == {"positions": 3}
    again.clear()
    assert open_folder(tmp_path).names() == []
    assert list(tmp_path.iterdir()) == []


def test_other_terms_are_refused_by_name(parts: Parts[Pair], tmp_path: Path) -> None:
    parts.write(0, [], counts={})
    with pytest.raises(
        SetupError, match=r"was begun with other settings: nodes was None, is 9; seed was 0, is 1\."
    ):
        Parts(open_folder(tmp_path), PAIRS, terms={"seed": 1, "nodes": 9})


def test_only_parts_without_a_gap_count() -> None:
    finished = FinishedParts()
    finished.add(1, [pair(20), pair(21)])
    assert (finished.parts, finished.pairs) == (0, 0)
    finished.add(0, [pair(20)])
    assert (finished.parts, finished.pairs) == (2, 2)


def test_parts_cover_the_positions() -> None:
    supply = NumberedPositions(lambda number: START, size=2 * PART_SIZE + 3)
    assert [len(supply.part(i)) for i in range(4)] == [PART_SIZE, PART_SIZE, 3, 0]
    assert supply.part(2) == range(2 * PART_SIZE, 2 * PART_SIZE + 3)


# work on many things at once


async def test_no_more_than_the_limit_is_in_the_works() -> None:
    working = most = 0

    async def work(number: int) -> int:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0.001 * (number % 3))
        working -= 1
        return number

    made_here = [number async for number in as_completed(range(50), work, limit=7)]
    assert sorted(made_here) == list(range(50))
    assert most == 7


async def test_the_first_error_ends_the_rest() -> None:
    cancelled = []

    async def work(number: int) -> int:
        if number == 3:
            raise PeerFault("away")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    with pytest.raises(PeerFault):
        async with aclosing(as_completed(range(100), work, limit=5)) as results:
            async for _ in results:
                pass
    assert sorted(cancelled) == [0, 1, 2, 4]


@dataclass
class Scorer:
    """A reward service by which every move but the engine's loses 0.2."""

    version: str = "delta-1"

    async def stream(
        self, requests: AsyncIterator[tuple[PairRequest, list[ScoreItem]]], *, scheme: str, items: int
    ) -> AsyncIterator[tuple[PairRequest, list[Verdict]]]:
        async for request, answers in requests:
            verdicts = [verdict(answer.response.split("{")[1][:4], 0.2) for answer in answers]
            yield request, [replace(one, reward_version=self.version) for one in verdicts]


def position(number: int) -> Position:
    board = chess.Board()
    board.push(list(board.legal_moves)[number % 5])
    return Position(f"p:{number}", board.fen(), 1, Phase.OPENING, "game")


async def test_parts_are_not_continued_with_another_engine(tmp_path: Path) -> None:
    parts = Parts(open_folder(tmp_path), PAIRS, terms={})
    parts.write(0, [pair(20)], counts={})
    maker = PairMaker(NumberedPositions(position), RECIPE, parts, wanted=4)
    with pytest.raises(
        SetupError, match=r"have reward version 'delta-1', 'p:.*' has 'delta-2': use the same"
    ):
        await maker.run(Scorer("delta-2"), in_flight=8, advance=lambda count: None)


async def test_workers_with_different_engines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = iter(["Stockfish 16", "Stockfish 17"])

    def score(shard: list[list[ScoreItem]], scheme: str, nodes: int) -> list[list[Verdict]]:
        return [[replace(ILLEGAL, engine=EngineStamp(next(engines), 0))] for _ in shard]

    async def groups() -> AsyncIterator[tuple[int, list[ScoreItem]]]:
        for number in range(2):
            yield number, [ScoreItem(chess.STARTING_FEN, "")]

    monkeypatch.setattr("chess_datasets.commands.engines._score_shard", score)
    with (
        Workers(1) as workers,
        pytest.raises(SetupError, match="engines 'Stockfish 16', 'Stockfish 17': ins"),
    ):
        [found async for found in WorkerScorer(workers, 9).stream(groups())]


async def test_progress_never_passes_the_wanted_number(tmp_path: Path) -> None:
    parts = Parts(open_folder(tmp_path), PAIRS, terms={})
    maker = PairMaker(NumberedPositions(position), RECIPE, parts, wanted=4)
    advanced: list[int] = []
    await maker.run(Scorer(), in_flight=8, advance=advanced.append)
    assert sum(advanced) == maker.pair_count == len(list(maker.pairs())) == 4
    again = PairMaker(NumberedPositions(position), RECIPE, parts, wanted=4)
    assert (again.pair_count, again.done) == (4, True)


def test_parts_that_only_repeat_are_an_end() -> None:
    finished = FinishedParts()
    finished.add(0, [pair(20)])
    for part in range(1, MAX_PARTS_WITHOUT_PAIR):
        finished.add(part, [pair(20)] * (part % 2))
    assert not finished.exhausted
    finished.add(MAX_PARTS_WITHOUT_PAIR + 1, [pair(22)])  # ahead of the one that ends it: it does not count
    finished.add(MAX_PARTS_WITHOUT_PAIR, [])
    assert finished.exhausted
    assert (finished.pairs, finished.parts) == (1, MAX_PARTS_WITHOUT_PAIR + 1)


@pytest.mark.parametrize(("least", "most"), [(0.5, 0.1), (0.0, 1.0)])
def test_gaps_without_anything_between_them_are_refused(least: float, most: float) -> None:
    with pytest.raises(InvalidInput, match=f"gaps from {least} to {most}"):
        PairRecipe(min_gap=least, max_gap=most)


def test_a_mirrored_position_is_no_other() -> None:
    mirrored = replace(pair(20), id="mirrored", fen=chess.Board(pair(20).fen).mirror().fen())
    assert [p.id for p in without_repeats([pair(20), mirrored], seen=set())] == ["p20"]


async def test_of_several_errors_one_is_told_and_none_is_forgotten() -> None:
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))

    async def fail(number: int) -> int:
        raise PeerFault(f"{number} is away")

    with pytest.raises(PeerFault, match="is away"):
        async with aclosing(as_completed(range(9), fail, limit=4)) as results:
            async for _ in results:
                pass
    gc.collect()
    await asyncio.sleep(0)
    assert unheard == []


def test_terms_may_change_while_nothing_is_made(tmp_path: Path) -> None:
    Parts(open_folder(tmp_path), PAIRS, terms={"model": "wrong"})
    parts = Parts(open_folder(tmp_path), PAIRS, terms={"model": "right"})
    parts.write(0, [], counts={})
    with pytest.raises(SetupError, match="model was 'right', is 'wrong'"):
        Parts(open_folder(tmp_path), PAIRS, terms={"model": "wrong"})
