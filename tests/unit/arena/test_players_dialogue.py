"""The dialogue of LLM Chess: what a model is told, what ends its turn, and what the counts say."""

import asyncio
import json
from pathlib import Path

import chess
import pytest

from arena.matches import llm_chess, workers
from arena.matches.session import run_match
from arena.players.dialogue import MOST_TURNS, DialoguePlayer
from arena.players.player import RandomPlayer
from arena.players.spec import make_player
from arena.sections.matches import match_sections
from rookery.clients import InferenceClient
from rookery.config.arena import MatchSettings
from rookery.engines.player import Reply
from rookery.errors import SetupError
from rookery.trace import Completion, Message, Outcome, Prompt, Sampling


class Talker(DialoguePlayer):
    """Answers with the words of `source`, one after the other; MOVE stands for the first legal move."""

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        words = self.source.split("|")
        turn = len(prompt.messages) // 2
        first = min(map(chess.Move.uci, chess.Board(prompt.fen).legal_moves))
        text = words[min(turn, len(words) - 1)].replace("MOVE", f"make_move {first}")
        assert [message.role for message in prompt.messages] == (["user", "assistant"] * turn) + ["user"]
        SEEN.append(prompt.messages)
        return (Completion(text, (1, 2), (), "stop", seed),)


SEEN: list[tuple[Message, ...]] = []


def talker(*words: str) -> Talker:
    client = InferenceClient("http://127.0.0.1:9")
    return Talker("model", client, "m", "fen", Sampling(), source="|".join(words))


def reply(*words: str, board: chess.Board | None = None) -> Reply:
    SEEN.clear()
    return asyncio.run(talker(*words).play(board or chess.Board(), seed=0))


def test_a_model_sees_the_board_and_the_moves_that_it_asks_for() -> None:
    board = chess.Board()
    board.push_uci("e2e4")
    answer = reply(
        "I want get_current_board.", "<think>make_move a2a3</think>get_legal_moves", "MOVE", board=board
    )
    assert (answer.move, answer.outcome, answer.failed) == (chess.Move.from_uci("a7a5"), Outcome.LEGAL, ())
    assert answer.tokens == 6
    shown = [message.content for message in SEEN[-1] if message.role == "user"]
    assert shown[0].startswith("You are a professional chess player and you play as black. Now is your turn")
    assert shown[1] == board.unicode()
    assert set(shown[2].split(",")) == {move.uci() for move in board.legal_moves}


@pytest.mark.parametrize(
    ("words", "outcomes"),
    [
        (["e4", "make_move e2e5", "MOVE"], ["unparsable", "illegal", "legal"]),
        (["make_move 0000", "make_move e9e4", "make_move e2e5"], ["illegal"] * 3),
        (["Hello"], ["unparsable"] * 3),
        (["get_current_board"], ["truncated"]),
        (["Hello", "get_legal_moves"], ["unparsable", "truncated"]),
    ],
)
def test_wrong_answers_and_their_limits(words: list[str], outcomes: list[str]) -> None:
    answer = reply(*words)
    assert [*answer.failed, answer.outcome] == outcomes
    assert (answer.move is None) == (outcomes[-1] != "legal")
    assert len(SEEN) == (MOST_TURNS if outcomes[-1] == "truncated" else 3)


def test_games_by_dialogue_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    players = {"model": talker("get_legal_moves", "make_move e2e5", "Hm", "MOVE"), "random": RandomPlayer()}
    players["stuck"] = talker("get_current_board")
    monkeypatch.setattr(workers, "make_player", players.__getitem__)
    reports = {}
    for name in ("model", "stuck"):
        out = tmp_path / f"matches-{name}"
        settings = MatchSettings(player=name, opponent="random", pairs=3, llm_chess=True, out=out)
        reports[name] = asyncio.run(run_match(settings))
    counts = reports["model"].llm_chess
    turns = counts["llm_total_moves"] // 2
    assert counts["llm_wrong_moves"] == counts["llm_wrong_actions"] == pytest.approx(turns, abs=3)
    assert counts["llm_max_turns"] == 0
    stuck = reports["stuck"].llm_chess
    assert (stuck["llm_max_turns"], stuck["llm_wrong_actions"], stuck["white_rand_wins"]) == (3, 0, 3)
    assert reports["stuck"].ratings.players
    section = match_sections(tmp_path)[1]
    rows = {row.metric.name: row.cells["model"].estimate.mean for row in section.tables[2].rows}
    assert (rows["llm_max_turns"], rows["win_loss"]) == (3, 0)
    assert json.loads((tmp_path / "matches-stuck" / "match.json").read_text())["llm_chess"] == stuck
    assert llm_chess.count([], dialogue=True) is None


def test_a_dialogue_is_an_option_of_models() -> None:
    player = make_player("http://127.0.0.1:9#m,dialogue=llm-chess")
    assert player.describe()["dialogue"] == "llm-chess"
    with pytest.raises(SetupError, match="vote= and dialogue= exclude each other"):
        make_player("http://127.0.0.1:9#m,dialogue=llm-chess,vote=2")
