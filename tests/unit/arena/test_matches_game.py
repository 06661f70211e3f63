"""One game: how it ends, what an illegal move costs, what a fault does."""

import asyncio

import chess
import chess.engine
import pytest

from arena.matches.game import Fixture, MatchGame, play
from arena.players.player import FirstLegalPlayer, Player, RandomPlayer
from rookery.engines.player import Reply
from rookery.errors import ContextExceeded, PeerFault
from rookery.games import Rules
from rookery.openings import START, Opening
from rookery.trace import Outcome
from tests.unit.arena.players import Failing, Illegal, Scripted, judges, plays

KEY = "0123456789abcdef01234567"


def game(
    white: Player, black: Player, rules: Rules | None = None, *, opening: Opening = START, referee=None
) -> MatchGame:
    fixture = Fixture(0, white.name, black.name, opening, KEY)
    players = {white.name: white, black.name: black}
    return asyncio.run(play(fixture, players, rules or Rules(), referee=referee, backoff_s=0))


def test_checkmate() -> None:
    ended = game(plays("f2f3", "g2g4", name="fool"), plays("e7e5", "d8h4", name="scholar"))
    assert (ended.result, ended.termination, ended.white_score) == ("0-1", "checkmate", 0.0)
    assert [turn.move for turn in ended.turns_of("scholar")] == ["e7e5", "d8h4"]


def test_draws_that_may_be_claimed_are_given() -> None:
    shuffle = [("g1f3", "f3g1") * 20, ("g8f6", "f6g8") * 20]
    ended = game(plays(*shuffle[0], name="a"), plays(*shuffle[1], name="b"))
    assert (ended.result, ended.termination, len(ended.turns)) == ("1/2-1/2", "threefold_repetition", 8)
    unclaimed = game(plays(*shuffle[0], name="a"), plays(*shuffle[1], name="b"), Rules(claim_draws=False))
    assert (unclaimed.result, unclaimed.termination) == ("1/2-1/2", "fivefold_repetition")
    fifty = Opening("", "4k3/8/8/8/8/8/4P3/4K3 w - - 99 80")
    assert game(plays("e1d1", name="a"), plays(name="b"), opening=fifty).termination == "fifty_moves"


def test_the_ply_limit_counts_the_opening() -> None:
    opening = Opening("", moves=("e2e4", "e7e5"))
    ended = game(FirstLegalPlayer(), RandomPlayer(), Rules(max_plies=7), opening=opening)
    assert (ended.result, ended.termination, len(ended.turns)) == ("1/2-1/2", "ply_limit", 5)


def test_black_moves_first_from_such_an_opening() -> None:
    opening = Opening("", moves=("e2e4",))
    ended = game(FirstLegalPlayer(), RandomPlayer(), Rules(max_plies=4), opening=opening)
    assert [len(ended.turns_of(name)) for name in ("random", "first-legal")] == [2, 1]
    assert ended.turns_of("first-legal")[0].move == "a2a3"


def test_a_forfeit_loses_and_says_why() -> None:
    ended = game(Illegal("model"), RandomPlayer())
    assert (ended.result, ended.termination) == ("0-1", "illegal_move")
    assert ended.turns[-1].outcomes == ("illegal",)
    assert ended.turns[-1].move is None
    assert not ended.turns[-1].legal_at_once


def test_a_prompt_that_outgrows_the_context_is_no_legal_move() -> None:
    def grown(board: chess.Board, asked: int) -> Reply:
        if asked > 3:
            raise ContextExceeded("the maximum context length is 384")
        return Reply(next(iter(board.legal_moves)), Outcome.LEGAL)

    ended = game(Scripted("model", grown), RandomPlayer())
    assert (ended.result, ended.termination) == ("0-1", "illegal_move")
    assert ended.turns[-1].outcomes == ("truncated",)
    with pytest.raises(ContextExceeded):
        game(Scripted("model", lambda board, asked: grown(board, 4)), RandomPlayer())


def test_retries_are_counted_and_end() -> None:
    second = Scripted(
        "model",
        lambda board, asked: (
            Reply(None, Outcome.NO_BOX, tokens=2)
            if asked % 3
            else Reply(next(iter(board.legal_moves)), Outcome.LEGAL, tokens=2)
        ),
    )
    ended = game(second, RandomPlayer(), Rules(illegal="retry:2", max_plies=20))
    assert ended.termination == "ply_limit"
    turns = ended.turns_of("model")
    assert {turn.outcomes for turn in turns} == {("no_box", "no_box", "legal")}
    assert {turn.tokens for turn in turns} == {6}
    assert not any(turn.legal_at_once for turn in turns)
    second.asked = 0
    lost = game(second, RandomPlayer(), Rules(illegal="retry:1"))
    assert (lost.result, lost.turns[-1].outcomes) == ("0-1", ("no_box", "no_box"))


def test_a_random_move_instead_keeps_the_game_going_and_the_count() -> None:
    ended = game(Illegal("model"), RandomPlayer(), Rules(illegal="random", max_plies=120))
    replaced = [turn for turn in ended.turns_of("model") if turn.outcomes == ("illegal",)]
    assert ended.termination != "illegal_move"
    assert replaced
    assert all(turn.move for turn in replaced)


def test_a_game_is_the_same_each_time() -> None:
    assert game(RandomPlayer("a"), RandomPlayer("b")) == game(RandomPlayer("a"), RandomPlayer("b"))


def test_faults_that_pass_change_nothing() -> None:
    flaky = Failing(lambda call: call % 3 != 0)
    assert game(flaky, FirstLegalPlayer()) == game(RandomPlayer(), FirstLegalPlayer())


def test_a_player_that_stays_away_gives_no_result() -> None:
    with pytest.raises(PeerFault, match="the endpoint is gone"):
        game(Failing(lambda call: call > 3), FirstLegalPlayer())


@pytest.mark.parametrize(
    ("score", "result"),
    [
        (chess.engine.Cp(1300), "1-0"),
        (chess.engine.Mate(-3), "0-1"),
        (chess.engine.Cp(1299), None),
        (chess.engine.Cp(-10), "1/2-1/2"),
    ],
)
def test_a_referee_ends_decided_games(score: chess.engine.Score, result: str | None) -> None:
    rules = Rules(adjudicate_plies=4, draw_from_ply=6, max_plies=9)
    ended = game(RandomPlayer("a"), RandomPlayer("b"), rules, referee=judges(lambda board: score))
    if result is None:
        assert ended.termination == "ply_limit"
    else:
        assert (ended.result, ended.termination) == (result, "adjudication")
        assert len(ended.turns) == (6 if result == "1/2-1/2" else 4)
    assert {(turn.cp, turn.mate) for turn in ended.turns} == {(score.score(), score.mate())}


@pytest.mark.parametrize(
    ("score", "result"),
    [
        (chess.engine.Cp(500), "1-0"),
        (chess.engine.Cp(-500), "0-1"),
        (chess.engine.Mate(-9), "0-1"),
        (chess.engine.Cp(499), "1/2-1/2"),
    ],
)
def test_a_lead_at_the_ply_limit_wins(score: chess.engine.Score, result: str) -> None:
    def decides(board: chess.Board) -> chess.engine.Score:
        return score if board.ply() == 9 else chess.engine.Cp(0)

    rules = Rules(max_plies=9, limit_cp=500)
    ended = game(RandomPlayer("a"), RandomPlayer("b"), rules, referee=judges(decides))
    assert (ended.result, ended.termination, len(ended.turns)) == (result, "ply_limit", 9)


def test_one_look_at_another_score_starts_the_count_again() -> None:
    def swings(board: chess.Board) -> chess.engine.Cp:
        return chess.engine.Cp(0 if board.ply() == 3 else 2000)

    rules = Rules(adjudicate_plies=4, max_plies=20)
    ended = game(RandomPlayer("a"), RandomPlayer("b"), rules, referee=judges(swings))
    assert (ended.termination, len(ended.turns)) == ("adjudication", 7)
