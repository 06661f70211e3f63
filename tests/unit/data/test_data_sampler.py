import math
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chess_datasets.pgn.games import Game
from chess_datasets.positions.recipe import Shares
from chess_datasets.tasks.moves import pick_plies
from rookery.errors import InvalidInput
from rookery.trace import Phase
from tests.unit.data.texts import ENDING, ENDING_FEN, RUY, game, sound

OPENING = sound(game(RUY))
ENDGAME = sound(game(ENDING, FEN=ENDING_FEN))

GAMES = st.lists(st.sampled_from([OPENING, ENDGAME]), min_size=1, max_size=12)
WEIGHTS = st.floats(0.01, 10)


def chosen(games: list[Game], picked: list[list[int]], phase: Phase) -> int:
    return sum(ply in game.plies(phase) for game, plies in zip(games, picked, strict=True) for ply in plies)


@given(games=GAMES, count=st.integers(0, 100), seed=st.integers(), opening=WEIGHTS, endgame=WEIGHTS)
@settings(deadline=None)
def test_shares_are_kept_while_there_is_enough(
    games: list[Game], count: int, seed: int, opening: float, endgame: float
) -> None:
    shares = Shares(opening, 0.0, endgame)
    picked = pick_plies(games, count=count, seed=seed, shares=shares)
    for phase, wanted in shares.split(count).items():
        there = sum(len(game.plies(phase)) for game in games)
        assert chosen(games, picked, phase) == min(there, wanted)


@given(weights=st.tuples(*[st.just(0.0) | WEIGHTS] * 3).filter(any), count=st.integers(0, 10**12))
def test_the_parts_of_a_count_add_up_to_it(weights: tuple[float, float, float], count: int) -> None:
    shares = Shares(*weights)
    parts = shares.split(count)
    assert sum(parts.values()) == count
    assert all(abs(parts[phase] - count * shares.of(phase)) <= 1 for phase in Phase)
    assert all(parts[phase] == 0 for phase in Phase if shares.of(phase) == 0)


@pytest.mark.parametrize("weights", [(0, 0, 0), (-0.1, 1, 1), (math.nan, 1, 1), (math.inf, 1, 1)])
def test_weights_that_are_none_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="none may be negative"):
        Shares(*weights)


@given(games=GAMES, count=st.integers(0, 100), seed=st.integers())
@settings(deadline=None)
def test_no_ply_is_picked_twice_and_the_seed_decides(games: list[Game], count: int, seed: int) -> None:
    picked = pick_plies(games, count=count, seed=seed, shares=Shares())
    assert all(plies == sorted(set(plies)) for plies in picked)
    assert picked == pick_plies(games, count=count, seed=seed, shares=Shares())


def test_every_ply_has_the_same_chance() -> None:
    games = [OPENING] * 10
    counts = [0] * 10
    for seed in range(200):
        for ply in chain.from_iterable(pick_plies(games, count=10, seed=seed, shares=Shares(1, 0, 0))):
            counts[ply] += 1
    assert sum(counts) == 2000
    assert 140 < min(counts) <= max(counts) < 260


def test_shares_need_not_add_up_to_one() -> None:
    shares = Shares(1, 2, 1)
    assert [shares.of(phase) for phase in Phase] == [0.25, 0.5, 0.25]
    assert sum(Shares().of(phase) for phase in Phase) == pytest.approx(1)
