"""Episodes over HTTP: the environments of `rookery.episodes`, with nothing kept between requests."""

import asyncio
import json
from typing import Any

import chess
import chess.engine
import httpx
import pytest

from rookery.engines.player import EnginePlayer, stockfish_player
from rookery.errors import SetupError, Unavailable
from rookery.trace import ScoreItem, Verdict
from services.reward import scorer as scoring
from services.reward.episodes import MAX_TURNS
from services.reward.scorer import Scorer
from tests.episodes import highest, play

pytestmark = pytest.mark.stockfish

LADDER = "7k/8/R7/1R6/8/8/8/K7 w - - 0 1"
"""Mate in two: Rb7 Kg8, which is forced, Ra8#."""
MATE = "7k/1R6/R7/8/8/8/8/K7 w - - 0 1"


async def answered(http: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await http.post("/v1/episodes", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def played(http: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    states = [await answered(http, body)]
    while not states[-1]["done"]:
        states.append(await answered(http, {**states[-1]["episode"], "response": highest(states[-1]["fen"])}))
    return states


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize(("opponent", "style"), [("random", "mover-squares"), ("engine,blunders=0.5", "fen")])
async def test_a_game_is_that_of_rollouts(
    http: httpx.AsyncClient, scorer: Scorer, opponent: str, style: str, slot: int
) -> None:
    spec = f"game,opponent={opponent},colours=both,history=growing,plies=14,result=2"
    body = {"episode": spec, "fen": chess.STARTING_FEN, "style": style, "seed": 3, "slot": slot}
    begun, *states = await played(http, body)

    async def judge(fen: str, response: str) -> Verdict:
        return await scorer.score(ScoreItem(fen, response))

    own = await play(spec, chess.STARTING_FEN, judge, style=style, seed=3, slot=slot)
    assert len(own) > 3
    assert [(state["observation"], state["reward"]) for state in states] == [
        (turn.observation, turn.reward) for turn in own
    ]
    assert states[-1]["observation"].endswith(": 1/2-1/2, ply limit")
    assert states[-1]["episode"]["turns"][-1]["rewards"] == {"result": 1.0}
    first = begun["prompt"]
    assert states[1]["prompt"][: len(first)] == first
    again = await answered(http, begun["episode"])
    assert again == begun, "asked again, the same"


async def test_what_was_played_is_not_judged_again(
    http: httpx.AsyncClient, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[ScoreItem] = []
    score = scorer.score

    async def counted(item: ScoreItem) -> Verdict:
        judged.append(item)
        return await score(item)

    monkeypatch.setattr(scorer, "score", counted)
    states = await played(http, {"episode": "game,opponent=engine,plies=12", "fen": chess.STARTING_FEN})
    turns = len(states) - 1
    assert turns == 6
    assert len(judged) == turns + (turns - 1) + 1, (
        "each answer, and each move of the engine but after the last"
    )


async def test_a_win_and_a_forfeit(http: httpx.AsyncClient) -> None:
    begun = await answered(http, {"episode": "game,moves_to_mate=0.5", "fen": LADDER})
    second = await answered(http, {**begun["episode"], "response": r"\boxed{Rb7}"})
    assert (second["observation"], second["done"]) == ("Kg8", False)
    mate = await answered(http, {**second["episode"], "response": r"\boxed{Ra8#}"})
    assert (mate["observation"], mate["prompt"], mate["done"]) == (": 1-0, checkmate", None, True)
    assert mate["reward"] == pytest.approx(1.0 + 0.5 * (1 - 1 / 40))
    lost = await answered(http, {**second["episode"], "response": "I resign."})
    assert (lost["observation"], lost["reward"]) == (": 0-1, illegal move", -1.5)


async def test_tools(http: httpx.AsyncClient) -> None:
    body = {"episode": "tools,price=0.01", "fen": LADDER}
    begun = await answered(http, body)
    assert "<tool>legal_moves</tool>" in begun["prompt"][-1]["content"] and begun["tools"] == []
    legal = await answered(http, {**begun["episode"], "response": "<tool>legal_moves</tool>"})
    assert legal["observation"].startswith("Legal moves: Ka2 Kb1")
    assert (legal["reward"], legal["episode"]["turns"][0]["verdict"]) == (-0.01, None)
    engine = await answered(http, {**legal["episode"], "response": "<tool>engine</tool>"})
    assert engine["observation"].startswith("Best move: R")
    assert engine["reward"] == pytest.approx(-0.11)
    assert [message["role"] for message in engine["prompt"][-4:]] == ["assistant", "user"] * 2
    end = await answered(http, {**engine["episode"], "response": r"\boxed{Rb7}"})
    assert (end["done"], end["episode"]["turns"][-1]["verdict"]["outcome"]) == (True, "legal")
    cut = await answered(http, {**engine["episode"], "cut": True})
    assert (cut["done"], cut["reward"]) == (True, -1.5)
    assert cut["episode"]["turns"][-1]["verdict"]["outcome"] == "truncated"
    assert cut["observation"].endswith(": context limit")


async def test_tools_as_a_chat_template_has_them(http: httpx.AsyncClient) -> None:
    begun = await answered(http, {"episode": "tools,calls=template", "fen": LADDER})
    assert [tool["function"]["name"] for tool in begun["tools"]][:2] == ["board", "legal_moves"]
    call = {"response": '<tool_call>{"name": "legal_moves", "arguments": {}}</tool_call>'}
    after = await answered(http, {**begun["episode"], **call})
    assert after["prompt"][-1] == {"role": "tool", "content": after["observation"]}
    assert after["tools"] == begun["tools"]
    assert (await answered(http, {**after["episode"], "response": r"\boxed{Rb7}"}))["tools"] == []


async def test_stockfish_plays_from_the_book(http: httpx.AsyncClient, scorer: Scorer) -> None:
    spec = "game,opponent=stockfish,nodes=20,start=book,plies=14"
    strong = await played(http, {"episode": spec, "seed": 4})
    assert strong == await played(http, {"episode": spec, "seed": 4})
    assert len(strong) == 8
    weak = await played(http, {"episode": spec.replace("nodes=20", "depth=1,skill=0"), "seed": 4})
    assert weak[0]["fen"] == strong[0]["fen"] != chess.STARTING_FEN
    assert strong == await played(http, {"episode": spec, "seed": 4}), "at its full skill again"


async def test_a_game_that_outgrows_the_context_is_a_draw(http: httpx.AsyncClient) -> None:
    begun = await answered(http, {"episode": "game", "fen": LADDER})
    second = await answered(http, {**begun["episode"], "response": r"\boxed{Rb7}"})
    end = await answered(http, {**second["episode"], "cut": True})
    assert (end["observation"], end["reward"], end["done"]) == ("Kg8: 1/2-1/2, context limit", 0.5, True)
    assert await answered(http, end["episode"]) == {**end, "reward": 0.0}
    for following in ({"cut": True}, {"response": r"\boxed{Ra8#}"}):
        response = await http.post("/v1/episodes", json={**end["episode"], **following})
        assert response.status_code == 422
        assert "the episode is over" in response.json()["detail"]


TURN = {"response": r"\boxed{Rb7}", "observation": "Kg8"}
LEGAL = {
    "reward": 0.0,
    "outcome": "legal",
    "reward_version": "1",
    "move": {"uci": "b5b7", "san": "Rb7"},
}


@pytest.mark.parametrize(
    ("fields", "quoted"),
    [
        ({"fen": "nonsense"}, "'nonsense'"),
        ({"fen": ""}, "fen ''"),
        ({"fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"}, "the game is over: '7k/5Q2"),
        ({"episode": "walk"}, "no kind 'walk'"),
        ({"episode": "game,plies=0"}, "plies"),
        ({"episode": "game,opponent=uci:/bin/sh,nodes=1"}, "opponent=uci plays in rollouts alone"),
        ({"episode": "game,opponent=policy"}, "opponent=policy plays in rollouts alone"),
        ({"episode": "game,opponent=self"}, "opponent=self plays in rollouts alone"),
        ({"episode": "game,opponent=stockfish,nodes=1000001"}, "nodes=1000001 is more than 1000000"),
        ({"episode": "game,opponent=stockfish,depth=21"}, "depth=21 is more than 20"),
        ({"episode": "game,start=/etc/passwd"}, "only the feed"),
        ({"episode": "game,start=book"}, "games with start=book have none"),
        (
            {"episode": "game,opponent=stockfish,nodes=5,elo=9", "response": r"\boxed{Rb7}"},
            "9 is not a value of",
        ),
        ({"episode": "game,colours=both", "slot": 1, "first": "8/8"}, "leads to '8/8'"),
        ({"style": "song"}, "style"),
        ({"seed": -1}, "seed"),
        ({"last_moves": ["e9"]}, "last_moves.0"),
        ({"response": 7}, "response"),
        ({"cut": True}, "cut: no turn was taken"),
        ({"turns": [TURN], "response": "more"}, "response: the episode is over"),
        ({"turns": [TURN, TURN]}, "turns.1: the episode is over"),
        (
            {"turns": [{**TURN, "verdict": LEGAL, "observation": "Ka8"}]},
            "IllegalMoveError: illegal san: 'Ka8'",
        ),
        ({"turns": [{**TURN, "verdict": {**LEGAL, "move": {"uci": "b5c7", "san": "-"}}}]}, "b5c7"),
        ({"turns": [{**TURN, "rewards": {"a": 1e308, "b": 1e308}}]}, "the reward inf"),
        ({"turns": [TURN] * (MAX_TURNS + 1)}, f"at most {MAX_TURNS}"),
        (
            {
                "episode": "game,opponent=stockfish,nodes=9",
                "turns": [{**TURN, "verdict": LEGAL, "observation": ""}],
            },
            "turns.0: the observation names no move of the opponent",
        ),
        (
            {"episode": "game,result=1.7e308,moves_to_mate=1.7e308", "fen": MATE, "response": r"\boxed{Ra8}"},
            "turns.0: the reward inf",
        ),
        ({"episode": "tools", "response": "\ud800 <tool>board</tool>"}, "surrogates not allowed"),
        ({"scheme": "gold", "response": "x"}, "'gold'"),
    ],
)
async def test_what_is_no_episode_is_quoted(
    http: httpx.AsyncClient, fields: dict[str, object], quoted: str
) -> None:
    content = json.dumps({"episode": "game", "fen": LADDER} | fields)
    response = await http.post("/v1/episodes", content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 422, response.text
    assert quoted in response.json()["detail"]


async def test_an_engine_that_failed_is_no_reward(http: httpx.AsyncClient, scorer: Scorer) -> None:
    begun = await answered(http, {"episode": "game", "fen": LADDER})
    await scorer.close()
    response = await http.post("/v1/episodes", json={**begun["episode"], "response": r"\boxed{Rb7}"})
    assert response.status_code == 503
    assert "reward" not in response.json()


async def test_an_opponent_that_did_not_start_is_started_again(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [SetupError("out of memory")]

    def start(*args: Any, **options: Any) -> EnginePlayer:
        if faults:
            raise faults.pop()
        return stockfish_player(*args, **options)

    monkeypatch.setattr(scoring, "stockfish_player", start)
    body = {"episode": "game,opponent=stockfish,nodes=9", "fen": LADDER, "response": r"\boxed{Rb7}"}
    response = await http.post("/v1/episodes", json=body)
    assert (response.status_code, response.json()["detail"]) == (503, "out of memory")
    assert (await answered(http, body))["observation"] == "Kg8"


async def test_no_more_moves_of_opponents_wait_than_searches_may(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "_settings", scorer._settings.model_copy(update={"queue": 1}))
    limit = chess.engine.Limit(nodes=9)
    asked = [scorer.reply(chess.Board(LADDER), limit=limit, options={}) for _ in range(4)]
    moves = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(move) for move in moves] == [chess.Move, chess.Move, Unavailable, Unavailable]
    assert await scorer.reply(chess.Board(LADDER), limit=limit, options={}) == moves[0]
