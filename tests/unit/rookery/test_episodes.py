"""Environments: what each says to which turn, and that turns that were played say the same again."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import chess
import pytest

from rookery.episodes import Environment, EnvironmentStep, Opponent, drawn, environment, parse_mix, with_calls
from rookery.errors import InvalidInput
from rookery.prompt import render
from rookery.trace import Completion, Evaluation, Message, Move, Outcome, Prompt, Turn, Verdict
from tests.builders import START, position

MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"


async def judge(fen: str, response: str) -> Verdict:
    """An engine that plays the first move, in the alphabet."""
    del response
    board = chess.Board(fen)
    best = min(board.legal_moves, key=chess.Move.uci)
    move = Move(best.uci(), board.san(best))
    return Verdict(0.0, Outcome.LEGAL, "1", best=move, win_before=0.5)


def turn(text: str, *, move: str = "", cp: int | None = None, answers: bool = True) -> Turn:
    verdict = Verdict(
        0.0,
        Outcome.LEGAL if move else Outcome.ILLEGAL,
        "1",
        move=Move(move, move) if move else None,
        eval_after=None if cp is None else Evaluation(cp=cp),
    )
    return Turn(Completion(text, (1,), (-0.5,), "stop", 1), verdict if answers else None)


def begun(spec: str, *, fen: str = START, style: str = "fen", seed: int = 1) -> Environment:
    made = environment(spec)
    made.reset(position(fen), style=style, seed=seed, judge=judge)
    return made


def played(spec: str, turns: Sequence[Turn], **how: object) -> list[EnvironmentStep]:
    made = begun(spec, **how)  # type: ignore[arg-type]
    return [asyncio.run(made.step(each)) for each in turns]


def test_a_move_is_over_after_one_turn() -> None:
    assert played("move", [turn("e4", move="e2e4")]) == [EnvironmentStep()]
    assert environment("").answers("anything")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("walk", "no kind 'walk': choose from move, tools, game"),
        ("game,plies=0", "plies: Input should be greater than 0"),
        ("game,rounds=3", "rounds: Extra inputs are not permitted"),
        (
            "game,opponent=foo",
            "game: no opponent 'foo': choose from random, engine, stockfish, uci:PATH, policy",
        ),
        ("game,opponent=uci:,nodes=1", "game: no opponent 'uci:'"),
        ("game,opponent=stockfish", "game: opponent=stockfish needs nodes= or depth="),
        ("game,opponent=stockfish,depth=1,skill=21", "skill: Input should be less than or equal to 20"),
        ("game,opponent=stockfish,depth=1,skill=2,elo=1500", "game: skill=2 and elo=1500 exclude each other"),
        ("game,nodes=4", "game: opponent=random has no option nodes=4"),
        ("game,opponent=self,colours=both", "game: opponent=self plays both colours"),
        ("0*move", "shares must be greater than 0"),
        ("nan*move", "shares must be greater than 0"),
        ("some*move", "could not convert string to float: 'some'"),
    ],
)
def test_what_is_no_episode_is_quoted(spec: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"^episodes? {spec!r}: {message}".replace("*", "[*]")):
        parse_mix(spec)


def test_a_mix_is_drawn_by_its_shares() -> None:
    mix = parse_mix("3*move + game,plies=4")
    got = [drawn(mix, seed=1, position=position(id=str(n))).episode for n in range(400)]
    assert set(got) == {"", "game,plies=4"}
    assert 60 < got.count("game,plies=4") < 140
    assert got[7] == drawn(mix, seed=1, position=position(id="7")).episode


@pytest.mark.parametrize("style", ["fen", "mover-squares", "game-uci"])
@pytest.mark.parametrize("history", ["afresh", "growing"])
@pytest.mark.parametrize("opponent", ["random", "engine", "engine,blunders=0.5"])
def test_a_game_goes_to_its_end_and_again_from_its_turns(style: str, history: str, opponent: str) -> None:
    spec = f"game,opponent={opponent},history={history},plies=30"

    def game(known: Sequence[Turn] = ()) -> tuple[list[Turn], list[str]]:
        made = environment(spec)
        black = START.replace(" w ", " b ")
        prompt = made.reset(position(black), style=style, seed=3, judge=judge)
        turns, fens = [], []
        while prompt:
            fens.append(prompt.fen)
            move = max(chess.Board(prompt.fen).legal_moves, key=chess.Move.uci).uci()
            each = [*known, *[turn(move, move=move)] * 99][len(turns)]
            step = asyncio.run(made.step(each))
            turns.append(replace(each, observation=step.observation, rewards=step.rewards))
            prompt = step.prompt
        return turns, fens

    turns, fens = game()
    assert len(turns) > 5
    end = turns[-1].observation.rpartition(": ")[2]
    assert end in ("1/2-1/2, ply limit", "1/2-1/2, threefold repetition")
    assert (turns[-1].rewards, turns[0].rewards) == ({"result": 0.5}, {})
    assert game() == (turns, fens)
    assert game(turns[:7]) == (turns, fens), "which were played before"
    mover = "w" if style == "mover-squares" else "b"
    assert {fen.split()[1] for fen in fens} == {mover}


def test_a_game_ends_by_mate_by_an_illegal_move_and_by_adjudication() -> None:
    (step,) = played("game", [turn("Ra8#", move="a1a8")], fen=MATE_IN_ONE)
    assert step == EnvironmentStep(": 1-0, checkmate", {"result": 1.0})
    (step,) = played("game,result=2", [turn("Kd8")])
    assert step == EnvironmentStep(": 0-1, illegal move", {"result": 0.0})
    # Black is to move: its own evaluations are White's, reversed.
    black = "4k2r/8/8/8/8/8/8/4K3 b k - 0 1"
    moves = [turn("x", move=move, cp=2000) for move in ("h8h7", "h7h8", "h8h7")]
    steps = played("game,opponent=engine", moves, fen=black)
    assert steps[-1] == EnvironmentStep(": 0-1, adjudication", {"result": 1.0})


def test_a_game_that_outgrows_the_context_is_a_draw() -> None:
    made = begun("game,opponent=engine,history=growing")
    first = turn("e4", move="e2e4")
    step = asyncio.run(made.step(first))
    end = made.cut(replace(first, observation=step.observation))
    assert end == EnvironmentStep("a5: 1/2-1/2, context limit", {"result": 0.5})


def test_a_game_against_itself_pays_both_sides() -> None:
    """Fool's mate: White's last turn came before the end, and is paid with it."""
    made = begun("game,opponent=self,plies=8,moves_to_mate=0.5", style="mover-squares")
    roles, steps = [], []
    for move in ("f2f3", "e2e4", "g2g4", "d1h5"):  # as mover-squares shows it
        roles.append(made.role)
        steps.append(asyncio.run(made.step(turn(move, move=move))))
    assert roles == ["white", "black"] * 2
    assert [step.prompt.fen.split()[1] for step in steps if step.prompt] == ["w"] * 3
    quick = pytest.approx(0.5 * (1 - 1 / 4))
    won = {"result": 1.0, "moves_to_mate": quick}
    assert steps[-1] == EnvironmentStep(": 0-1, checkmate", won, others={"result": 0.0})


def test_every_second_game_of_a_group_is_that_of_the_other_colour() -> None:
    """It begins with the opponent's move, which follows from the prompt that was shown."""
    for style in ("fen", "mover-squares", "game-uci"):
        seed = iter(range(9))

        def other(played: Prompt | None = None, style: str = style, seed: Iterator[int] = seed) -> object:
            made = environment("game,colours=both,plies=30", slot=1)
            made.reset(position(START), style=style, seed=next(seed), judge=judge)
            prompt = asyncio.run(made.begin(played))
            return prompt, made.role, made._game.board.fen()

        first = other()
        assert first[1] == "black"
        assert other(first[0]) == first
        assert other()[0] != first[0], "another seed"
    short = environment("game,colours=both,plies=1", slot=1)  # the opponent's first move ends it
    shown = short.reset(position(START), style="fen", seed=1, judge=judge)
    assert (asyncio.run(short.begin()), short.role) == (None, "white")
    assert (asyncio.run(short.begin(shown)), short.role) == (None, "white")
    mover = environment("game,colours=both")
    mover.reset(position(START), style="fen", seed=1, judge=judge)
    assert (asyncio.run(mover.begin()), mover.role) == (None, "white")


def test_the_last_mate_in_time_pays_the_same_to_who_moves_second() -> None:
    """Of 5 plies, the second side has 2."""
    made = environment("game,colours=both,plies=5,moves_to_mate=0.5", slot=1)
    made.reset(position("1r2k3/8/8/8/8/P7/5PPP/6K1 w - - 0 1"), style="fen", seed=1, judge=judge)
    played = render(position("1r2k3/8/8/8/P7/8/5PPP/6K1 b - - 0 1"), style="fen")
    assert asyncio.run(made.begin(played)) is not None
    asyncio.run(made.step(replace(turn("Kd8", move="e8d8"), observation="a5")))
    end = asyncio.run(made.step(turn("Rb1", move="b8b1")))
    assert end == EnvironmentStep(": 0-1, checkmate", {"result": 1.0, "moves_to_mate": 0.25})


def test_opponents_play_what_they_are_asked() -> None:
    class Playing:
        async def move(self, opponent, position, board, *, style, seed):
            assert (opponent, style, position.fen) == (
                Opponent("stockfish", nodes=5, skill=3),
                "fen",
                board.fen(),
            )
            assert position.last_moves[-1] == "e2e4"
            return min(board.legal_moves, key=chess.Move.uci)

    made = environment("game,opponent=stockfish,nodes=5,skill=3", opponents=Playing())
    made.reset(position(START), style="fen", seed=1, judge=judge)
    assert asyncio.run(made.step(turn("e4", move="e2e4"))).observation == "a5"


def test_a_growing_game_tells_the_opponents_move_on_the_board_that_is_shown() -> None:
    (step,) = played(
        "game,history=growing,opponent=engine",
        [turn("e4", move="e2e4")],
        fen=START.replace(" w ", " b "),
        style="mover-squares",
    )
    assert step.observation == "a3", "White's, on the real board"
    assert step.prompt is not None
    assert step.prompt.fen == "rnbqkbnr/1ppppppp/p7/8/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"
    assert step.prompt.messages[-1].content.startswith("Your opponent played a6.\n")


def test_a_growing_game_repeats_what_was_said() -> None:
    (first,) = played("game,history=growing,opponent=engine", [turn("I play e4", move="e2e4")])
    assert first.prompt is not None
    roles = [message.role for message in first.prompt.messages]
    assert roles == ["system", "user", "assistant", "user"]
    assert first.prompt.messages[2].content == "I play e4"
    assert first.prompt.messages[3].content.startswith("Your opponent played a5.\n")
    assert first.prompt.fen == "rnbqkbnr/1ppppppp/8/p7/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("legal_moves", "Legal moves: Kd1 Kd2 Ke2 Kf1 Kf2 O-O-O"),
        ("legal_moves now", "No tool 'legal_moves now': board, legal_moves, after MOVE ..., engine"),
        ("after(Ra8#)", "R . . . . . k ."),
        ("after Ra1a8 Kg7", "'Kg7' is not a legal move in R5k1/5ppp/8/8/8/8/8/4K3 b - - 1 1"),
        ("after --", "'--' is not a legal move in 6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1"),
        ("after", "No tool 'after'"),
        ("board", "White to move. FEN: 6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1"),
        ("engine", "Best move: Ra2 (a1a2), win probability 0.50"),
        ("cheat", "No tool 'cheat'"),
    ],
)
def test_a_call_of_a_tool_is_answered(call: str, said: str) -> None:
    fen = MATE_IN_ONE.replace(" - - ", " Q - ")
    made = begun("tools,price=0.01", fen=fen)
    text = f"Let me see. <tool>{call}</tool>"
    assert not made.answers(text)
    step = asyncio.run(made.step(turn(text, answers=False)))
    assert said in step.observation
    assert step.prompt is not None
    assert [message.content for message in step.prompt.messages[-2:]] == [text, step.observation]
    assert step.rewards == {"calls": pytest.approx(-0.11 if call == "engine" else -0.01)}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ('{"name": "legal_moves", "arguments": {}}', "Legal moves: Kd1 "),
        ('{"name": "after", "parameters": {"moves": "Ra8#"}}', "R . . . . . k ."),
        ('{"name": "after", "arguments": {"moves": ["Kg7"]}}', "'Kg7' is not a legal move in"),
        ('{"name": "engine", "arguments": {}}', "Best move: Ra2 (a1a2)"),
        ('{"name": "engine", "arguments": {"nodes": 1}}', "engine takes no arguments"),
        ('{"name": "board", "arguments": {}', "Expecting ',' delimiter"),
    ],
)
def test_a_call_as_the_template_has_it_is_answered_by_the_tool(call: str, said: str) -> None:
    made = begun("tools,price=0.01,calls=template", fen=MATE_IN_ONE)
    text = f"<think>Hm.</think><tool_call>{call}</tool_call>"
    assert not made.answers(text) and made.answers(r"<tool>board</tool>")
    step = asyncio.run(made.step(turn(text, answers=False)))
    assert said in step.observation
    assert step.prompt is not None
    assert [tool["function"]["name"] for tool in json.loads(step.prompt.tools)] == [
        "board", "legal_moves", "after", "engine",
    ]  # fmt: skip
    assert step.prompt.messages[-2:] == (Message("assistant", text), Message("tool", step.observation))
    assert "<tool>" not in step.prompt.messages[1].content
    assert step.rewards == {"calls": pytest.approx(-0.11 if "Best" in said else -0.01)}


def test_a_prompt_without_a_chat_template_has_no_tools_of_one() -> None:
    with pytest.raises(InvalidInput, match="calls=template: prompts of style rookworld have no chat"):
        begun("tools,calls=template", style="rookworld")


def test_calls_are_set_where_none_are_named() -> None:
    mix = "tools,turns=2+ 2*tools ,calls=tags + game,plies=4+tools "
    assert with_calls(mix, "template") == (
        "tools,turns=2,calls=template+ 2*tools ,calls=tags + game,plies=4+tools,calls=template "
    )


def test_calls_are_limited() -> None:
    made = begun("tools,turns=3")
    call = "<tool>engine</tool>"
    assert made.answers(f"{call} \\boxed{{e4}}")
    first, second = (asyncio.run(made.step(turn(call, answers=False))) for _ in range(2))
    assert first.observation.startswith("Best move: ")
    assert second == replace(second, observation="No more than 1 calls of engine", rewards={})
    assert made.answers(call), "the last turn is the answer, whatever it says"
    assert asyncio.run(made.step(turn(call))) == EnvironmentStep()
