import asyncio
from collections import Counter

import chess
import pytest

from arena.players.model import GuessingPlayer
from arena.players.player import EpsilonRandomPlayer, FirstLegalPlayer, RandomPlayer
from rookery.clients import InferenceClient
from rookery.prompt import render
from rookery.rookworld import StateAnswer, read_policy_answer, read_state_answer
from rookery.trace import Phase, Position, Sampling


def moves(player, board: chess.Board, seeds: range) -> list[str]:
    async def all_moves() -> list[str]:
        return [(await player.play(board, seed=seed)).move.uci() for seed in seeds]

    return asyncio.run(all_moves())


def test_random_plays_every_legal_move_equally_often() -> None:
    played = moves(RandomPlayer(), chess.Board(), range(4000))
    assert played == moves(RandomPlayer(), chess.Board(), range(4000))
    counts = Counter(played)
    assert set(counts) == {move.uci() for move in chess.Board().legal_moves}
    # 200 each on average, with a standard deviation of 14.
    assert 140 < min(counts.values()) <= max(counts.values()) < 260


def test_first_legal_is_the_first_in_the_alphabet() -> None:
    assert moves(FirstLegalPlayer(), chess.Board(), range(2)) == ["a2a3", "a2a3"]


def test_epsilon_random_plays_at_random_in_its_share_of_positions() -> None:
    mixed = EpsilonRandomPlayer(FirstLegalPlayer(), 0.3, "mixed")
    played = moves(mixed, chess.Board(), range(4000))
    # 0.7 of the moves are the first legal one, and a twentieth of the others; standard deviation 0.7 points.
    assert abs(played.count("a2a3") / 4000 - (0.7 + 0.3 / 20)) < 0.03
    assert len(set(played)) == 20
    assert mixed.describe() == {"kind": "epsilon-random", "share": 0.3, "player": {"kind": "first-legal"}}


@pytest.mark.parametrize("task", ["P", "A"])
def test_a_guess_has_the_form_and_no_knowledge(task: str) -> None:
    fen = "4k3/8/8/8/8/8/8/R3K3 b Q - 3 30"
    move = "e8e7" if task == "A" else ""
    position = Position("x", fen, 59, Phase.ENDGAME, "g", task=task, move=move)
    prompt, sampling = render(position, style="rookworld"), Sampling(0.0, 1.0, 64)
    player = GuessingPlayer("guess", InferenceClient("http://none"), "", "rookworld", sampling)
    texts = [c.text for c in asyncio.run(player.complete(prompt, count=2, seed=1))]
    if task == "A":
        assert {read_state_answer(text) for text in texts} == {StateAnswer(fen, 0.001, False, False)}
    else:
        first, second = map(read_policy_answer, texts)
        assert first and second and first.best == first.moves[0] != second.best
        assert {*first.moves} == {move.uci() for move in chess.Board(fen).legal_moves}
        assert set(first.evals) == {0.0}
