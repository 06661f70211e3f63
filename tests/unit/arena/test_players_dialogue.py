"""The dialogue of LLM Chess: what a model is told, what ends its turn, and what the counts say."""

import asyncio
import json
from pathlib import Path

import chess
import pytest

from arena.matches import llm_chess, workers
from arena.matches.session import run_match
from arena.players.dialogue import MOST_TURNS, DialoguePlayer, ToolAnswer, ToolsPlayer
from arena.players.model import ModelPlayer
from arena.players.player import RandomPlayer
from arena.players.spec import make_player
from arena.sections.matches import match_sections
from arena.tables import summary
from rookery.clients import InferenceClient
from rookery.config.arena import MatchSettings
from rookery.engines.player import Reply
from rookery.errors import ContextExceeded, SetupError
from rookery.games import position_of
from rookery.prompt import render
from rookery.trace import Completion, Message, Outcome, Prompt, Sampling


class Talker(DialoguePlayer):
    """Answers with the words of `source`, one after the other; MOVE stands for the first legal move."""

    async def _complete(self, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        words = self.source.split("|")
        turn = len(prompt.messages) // 2
        first = min(map(chess.Move.uci, chess.Board(prompt.fen).legal_moves))
        if words[min(turn, len(words) - 1)] == "TOO LONG":
            raise ContextExceeded("the maximum context length is 384")
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
        (["get_current_board", "Hello", "TOO LONG"], ["unparsable", "truncated"]),
    ],
)
def test_wrong_answers_and_their_limits(words: list[str], outcomes: list[str]) -> None:
    answer = reply(*words)
    assert [*answer.failed, answer.outcome] == outcomes
    assert (answer.move is None) == (outcomes[-1] != "legal")
    turns = words.index("TOO LONG") if "TOO LONG" in words else MOST_TURNS
    assert len(SEEN) == (turns if outcomes[-1] == "truncated" else 3)


def test_a_question_without_room_for_an_answer_is_an_error() -> None:
    with pytest.raises(ContextExceeded):
        reply("TOO LONG")


def test_games_by_dialogue_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
    stuck_player = dict(players["stuck"].describe())
    del stuck_player["dialogue"]  # questions are asked without one, and greedily
    described = {"model": {**stuck_player, "temperature": 0.0}}
    (section,) = match_sections(tmp_path, described)
    assert section.title == "LLM Chess, in dialogues"
    rows = {row.metric.name: row.cells["model"].estimate.mean for row in section.tables[2].rows}
    assert (rows["llm_max_turns"], rows["win_loss"]) == (3, 0)
    (line,) = summary([section], players=["model"])
    assert line == "LLM Chess, in dialogues: model against random: Elo below +94."
    assert "its player 'model' is" in caplog.text
    assert match_sections(tmp_path, {"another": {}, "random": players["random"].describe()}) == []
    assert "no player of this evaluation is in it: model" in caplog.text
    assert json.loads((tmp_path / "matches-stuck" / "match.json").read_text())["llm_chess"] == stuck
    assert llm_chess.count([], dialogue=True) is None


def test_a_dialogue_is_an_option_of_models() -> None:
    player = make_player("http://127.0.0.1:9#m,dialogue=llm-chess")
    assert player.describe()["dialogue"] == "llm-chess"
    with pytest.raises(SetupError, match="vote= and dialogue= exclude each other"):
        make_player("http://127.0.0.1:9#m,dialogue=llm-chess,vote=2")


LIST = "<tool>legal_moves</tool>"
LEGAL = "Na3 Nc3 Nf3 Nh3 a3 a4 b3 b4 c3 c4 d3 d4 e3 e4 f3 f4 g3 g4 h3 h4"


@pytest.mark.parametrize(
    ("texts", "calls", "answer"),
    [
        ([r"\boxed{e4}"], 0, r"\boxed{e4}"),
        ([LIST, r"\boxed{e4}"], 1, r"\boxed{e4}"),
        ([LIST, "<tool>engine</tool>", LIST], 2, LIST),
        ([LIST, None], 1, ""),
    ],
    ids=["none", "one", "the last turn is the answer", "no room for the list"],
)
def test_a_player_calls_tools_before_it_answers(
    monkeypatch: pytest.MonkeyPatch, texts: list[str | None], calls: int, answer: str
) -> None:
    asked = list[Prompt]()

    async def complete(_: ModelPlayer, prompt: Prompt, *, count: int, seed: int) -> tuple[Completion, ...]:
        text = texts[len(asked)]
        asked.append(prompt)
        if text is None:
            raise ContextExceeded("the maximum context length is 384")
        return (Completion(text, (1, 2), (), "stop", seed),)

    monkeypatch.setattr(ModelPlayer, "_complete", complete)
    player = make_player("http://127.0.0.1:9#m,style=fen,tools=3")
    assert isinstance(player, ToolsPlayer)
    prompt = render(position_of(chess.Board()), style="fen")
    (completion,) = asyncio.run(player.ask(prompt, count=1, seed=5))
    assert isinstance(completion, ToolAnswer)
    assert (completion.text, completion.calls, completion.truncated) == (answer, calls, None in texts)
    assert len(completion.token_ids) == 2 * sum(text is not None for text in texts)
    questions = [prompt.messages[-1].content for prompt in asked]
    assert "write one call, up to 2 times" in questions[0]
    assert questions[1:2] == ["Legal moves: " + LEGAL][:calls]
    assert questions[2:] == ["No more than 0 calls of engine"][: calls - 1]


def test_a_player_with_tools_needs_a_dialogue() -> None:
    with pytest.raises(SetupError, match="tools=2: prompts of style rookworld are no dialogue"):
        make_player("http://127.0.0.1:9#m,style=rookworld,tools=2")
    with pytest.raises(SetupError, match="dialogue= and tools= exclude each other"):
        make_player("http://127.0.0.1:9#m,dialogue=llm-chess,tools=2")
