"""Brittleness: the changed forms of a position, and the paired changes of answers written by hand."""

from dataclasses import replace

import chess
import pytest

from arena.answers import Answers
from arena.asking import Asker
from arena.players.model import ModelPlayer
from arena.players.player import RandomPlayer
from arena.sections import brittleness
from arena.sections.brittleness import (
    AS_IS,
    CLAIM,
    LISTED,
    MIRRORED,
    ROTATED,
    SHUFFLED,
    UNLISTED,
    Brittleness,
    claimed,
    rotate,
    rotated_move,
    shuffle,
)
from arena.sections.positions import mirror
from arena.tables import summary
from rookery.clients import InferenceClient
from rookery.prompt import mirrored_move, render
from rookery.trace import Outcome, Position, Sampling
from tests.boards import random_boards

ENDGAME = "8/5k2/8/8/3K4/8/4P3/8 b - - 0 60"


def model(style: str) -> ModelPlayer:
    return ModelPlayer(
        "model", InferenceClient("http://127.0.0.1:9"), "m", style, Sampling(), source="model:m"
    )


def test_left_and_right_are_swapped(positions: list[Position]) -> None:
    assert [rotate(position) is None for position in positions] == [True, True, True, False]
    rotated = rotate(positions[3])
    assert rotated is not None
    board, swapped = chess.Board(positions[3].fen), chess.Board(rotated.fen)
    assert {rotated_move(move.uci()) for move in board.legal_moves} == {m.uci() for m in swapped.legal_moves}
    assert rotate(rotated).fen == positions[3].fen  # type: ignore[union-attr]


def test_shuffled_positions_are_possible_and_have_the_same_pieces(positions: list[Position]) -> None:
    for number, board in enumerate(random_boards(20, seed=4, plies=(1, 60))):
        position = replace(positions[0], id=str(number), fen=board.fen())
        shuffled = shuffle(position, seed=1)
        assert shuffled is not None
        drawn = chess.Board(shuffled.fen)
        assert drawn.is_valid()
        assert drawn.turn == board.turn
        assert any(drawn.legal_moves)
        assert sorted(map(str, drawn.piece_map().values())) == sorted(map(str, board.piece_map().values()))
        assert shuffled.fen != position.fen
        assert shuffle(position, seed=1) == shuffled != shuffle(position, seed=2)


def test_the_questions_for_other_harnesses(positions: list[Position]) -> None:
    lines = list(Brittleness(positions, 0).lines("mover-twice"))
    asked = {
        form: [line for line in lines if line["form"] == form] for form in (AS_IS, ROTATED, SHUFFLED, CLAIM)
    }
    assert [len(of_form) for of_form in asked.values()] == [4, 1, 4, 4]
    assert len({line["id"] for line in lines}) == len(lines)
    (rotated,), (*_, original) = asked[ROTATED], asked[AS_IS]
    assert (rotated["original"], rotated["same_move"]) == (original["id"], "files")
    assert chess.Board(
        original["fen"]
    ).turn  # Black's position is shown mirrored, and so are the changed ones
    swapped = {rotated_move(move.uci()) for move in chess.Board(original["fen"]).legal_moves}
    assert swapped == {move.uci() for move in chess.Board(rotated["fen"]).legal_moves}
    assert {line["same_move"] for line in asked[SHUFFLED]} == {""}
    assert all("A grandmaster says" in line["prompt"][-1]["content"] for line in asked[CLAIM])


def test_the_claim_names_an_illegal_move(positions: list[Position]) -> None:
    for position in positions:
        board, move = chess.Board(position.fen), chess.Move.from_uci(claimed(position, seed=0))
        assert not board.is_legal(move)
        assert board.color_at(move.from_square) == board.turn


@pytest.mark.parametrize(
    ("style", "forms"),
    [
        ("mover-twice", {AS_IS, ROTATED, SHUFFLED}),
        ("game-san", {AS_IS, MIRRORED, ROTATED, SHUFFLED}),
        ("board", {AS_IS, MIRRORED, ROTATED, SHUFFLED, *brittleness._REMARKS}),
        ("fen", {AS_IS, MIRRORED, ROTATED, SHUFFLED, LISTED, *brittleness._REMARKS}),
        ("fen-moves", {AS_IS, MIRRORED, ROTATED, SHUFFLED, UNLISTED, *brittleness._REMARKS}),
        ("pieces-legal-san", {AS_IS, MIRRORED, ROTATED, SHUFFLED, UNLISTED, *brittleness._REMARKS}),
    ],
)
def test_each_style_is_asked_in_the_forms_that_it_can_show(
    style: str, forms: set[str], positions: list[Position]
) -> None:
    section = Brittleness(positions, 0)
    assert section._questions(model(style)).keys() == forms
    assert len(section.names(model(style))) == len(positions) * len(forms) - 3, "three positions can castle"
    assert len(section.names(RandomPlayer())) == 4 * len(positions) - 3


async def test_a_remark_ends_the_question(positions: list[Position], monkeypatch) -> None:
    shown = []

    async def complete(player: ModelPlayer, prompt, *, count: int, seed: int):
        shown.append(prompt.messages)
        return ()

    async def judge(asker: Asker, position, fen, texts, variant):
        return []

    monkeypatch.setattr(ModelPlayer, "complete", complete)
    monkeypatch.setattr(Asker, "_judge", judge)
    variant, _ = Brittleness(positions, 0)._questions(model("fen"))[CLAIM]
    asker = Asker(None, None, "", temperature=1.0, seed=0, concurrency=1)  # type: ignore[arg-type]
    await asker._answers(model("fen"), positions[0], variant)
    *before, last = render(positions[0], style="fen").messages
    said = f"A grandmaster says that {claimed(positions[0], seed=0)} is the best move here."
    assert shown == [(*before, replace(last, content=f"{last.content}\n{said}"))]


def test_changes_are_paired(positions: list[Position], judged) -> None:
    """Of four answers to the changed questions, one is illegal and one loses 0.2 more."""
    endgames = [replace(positions[3], id=str(n)) for n in range(4)]
    legal = judged(Outcome.LEGAL, regret=0.1, uci="f7e6")
    illegal = judged(Outcome.ILLEGAL, text=f"\\boxed{{{claimed(endgames[0], seed=0)}}}")
    worse = judged(Outcome.LEGAL, regret=0.3, uci="f7e7")
    swapped = judged(Outcome.LEGAL, regret=0.1, uci="c7d6")

    def side(*answers, change=lambda position: position) -> list[Answers]:
        return [
            Answers(position, change(position).fen, answer, ())
            for position, answer in zip(endgames, answers, strict=True)
        ]

    asked = {
        AS_IS: side(legal, legal, legal, legal),
        ROTATED: side(swapped, swapped, swapped, swapped, change=rotate),
        MIRRORED: side(*[judged(Outcome.LEGAL, regret=0.1, uci="f2e3")] * 4, change=mirror),
        CLAIM: side(illegal, worse, legal, legal),
    }
    section = Brittleness(endgames, 0).section(
        {"a": {**asked, CLAIM: asked[AS_IS]}, "b": asked}, players=["a", "b"]
    )
    cells = {row.metric.name: row.cells for table in section.tables for row in table.rows}
    board_only = {"random": {AS_IS: asked[AS_IS]}, "b": asked}
    facts = Brittleness(endgames, 0).section(board_only, players=["random", "b"]).facts
    assert facts["positions"] == {AS_IS: 4, ROTATED: 4, MIRRORED: 4, CLAIM: 4}
    claim = cells["illegal_claim/legal_change"]["b"]
    assert claim.estimate.mean == -0.25
    assert claim.difference is not None
    assert claim.difference.mean == -0.25
    assert cells["illegal_claim/regret_change"]["b"].estimate.mean == pytest.approx(0.2 / 3)
    assert cells["illegal_claim/same_move"]["b"].estimate.mean == 0.5
    assert [cells["follows_claim"][name].estimate.mean for name in "ab"] == [0, 0.25]
    for form in ("colours_swapped", "left_and_right_swapped"):
        assert cells[f"{form}/same_move"]["b"].estimate.mean == 1
        low, high = cells[f"{form}/legal_change"]["b"].estimate.ci95  # type: ignore[misc]
        assert low < 0 < high, "equal answers to four positions do not tell that nothing changes"
    assert cells["illegal_claim/legal"]["b"].estimate.mean == 0.75
    misled = {**asked, CLAIM: side(*[illegal] * 4)}
    section = Brittleness(endgames, 0).section({"a": asked, "b": misled}, players=["a", "b"])
    (line,) = [line for line in summary([section], players=["a", "b"]) if "asked otherwise" in line]
    assert line.startswith("b, asked otherwise: Illegal claim: legal -100.0 pts [-100.0, ")
    assert "as_it_is/legal_change" not in cells


def test_the_claim_is_mirrored_as_the_prompt_is(positions: list[Position], judged) -> None:
    asked = Brittleness(positions, 0)
    black = [position for position in positions if " b " in position.fen]
    assert black
    for position in black:
        move = claimed(position, seed=0)
        text = "{move}"
        assert asked._remark(text, "fen", position) == move
        assert asked._remark(text, "mover-squares", position) == mirrored_move(move)
        shown = render(position, style="mover-squares").fen
        for written, follows in ((mirrored_move(move), True), (move, False)):
            answer = judged(Outcome.ILLEGAL, text=f"\\boxed{{{written}}}")
            assert asked._follows_claim(Answers(position, shown, answer, ())) is follows


def test_no_form_has_the_moves_before(positions: list[Position]) -> None:
    moved = [replace(position, last_moves=("e2e4",)) for position in positions]
    asked = Brittleness(moved, 0)._questions(RandomPlayer("random"))
    assert not any(position.last_moves for _, form in asked.values() for position in form if position)
