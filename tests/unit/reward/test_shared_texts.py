"""Texts nobody here wrote: moves of real games as their files spell them, answers of real models."""

import json
from pathlib import Path

import chess
import pytest

from rookery.trace import Outcome
from services.reward.notation import Reading, read_move
from services.reward.parse import extract

pytestmark = pytest.mark.shared_data


def test_moves_of_real_games(shared_data: Path) -> None:
    for line in (shared_data / "san_fixtures" / "san_dev.jsonl").read_text().splitlines():
        row = json.loads(line)
        board = chess.Board(row["fen"])
        move = chess.Move.from_uci(row["uci"])
        for text in (row["san_in_file"], row["san"], row["uci"]):
            answer = extract(rf"<think>Perhaps.</think>\boxed{{{text}}}")
            assert read_move(answer.text, board) == Reading(Outcome.LEGAL, move), row


def test_boxed_answers_of_models(shared_data: Path) -> None:
    cases = (shared_data / "llm_outputs_boxed" / "game_arena_parser_cases.jsonl").read_text().splitlines()
    for case in map(json.loads, cases):
        if case["kind"] == "response":
            answer = extract(case["text"])
            if "oxed{" in case["text"]:
                assert answer.text == case["expected"], case
            else:
                assert answer.missing is Outcome.NO_BOX, case
            continue
        board = chess.Board(case["fen"])
        reading = read_move(extract(rf"\boxed{{{case['text']}}}").text, board)
        if case["expected"]:
            assert reading.move == board.parse_san(case["expected"]), case
        elif case["name"] == "invalid_move":
            assert reading.outcome is Outcome.ILLEGAL
