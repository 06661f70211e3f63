"""Texts nobody here wrote: moves of real games as their files spell them, answers of real models.

What is true of them comes from the files' own labels or from python-chess, not from the parser. Run
with `-s` to see the outcomes counted.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import pytest
from backports import zstd

from rookery.answers import MAX_BOX_CHARS, extract
from rookery.notation import MoveReading, read_move
from rookery.trace import Outcome

pytestmark = pytest.mark.shared_data

# An answer whose tag opens and closes after the last thought; these models were told to use tags, not boxes.
ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
COORDINATES = re.compile(r"[a-h][1-8]-?[a-h][1-8][qrbn]?")


def judged(response: str, fen: str) -> MoveReading:
    answer = extract(response)
    return MoveReading(answer.missing) if answer.missing else read_move(answer.text, chess.Board(fen))


def boxed(text: str) -> str:
    return rf"\boxed{{{text}}}"


def rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".zst":
        with path.open("rb") as file:
            text = io.TextIOWrapper(zstd.ZstdFile(file), "utf-8")
            yield from map(json.loads, text)
    else:
        yield from map(json.loads, path.read_text().splitlines())


@pytest.fixture(scope="module")
def san_rows(shared_data: Path) -> list[dict[str, Any]]:
    return list(rows(shared_data / "san_fixtures" / "san_dev.jsonl"))


def test_moves_of_real_games(san_rows: list[dict[str, Any]]) -> None:
    for row in san_rows:
        board, move = chess.Board(row["fen"]), chess.Move.from_uci(row["uci"])
        figurine = row["san"].translate(str.maketrans("KQRBN", "\u2654\u2655\u2656\u2657\u2658"))
        texts = [row["san_in_file"], row["san"], row["uci"], row["san"].rstrip("+#"), figurine]
        texts += [board.lan(move), rf"\text{{{row['san']}}}", f"**{row['san']}**", f"12... {row['san']}!?"]
        for text in texts:
            answer = extract(f"<think>Perhaps {boxed('a1a2')}.</think>{boxed(text)}")
            assert read_move(answer.text, board) == MoveReading(Outcome.LEGAL, move), (text, row)


def test_moves_of_real_games_without_what_told_them_apart(san_rows: list[dict[str, Any]]) -> None:
    refused = Counter()
    for row in san_rows:
        vague = re.sub(r"^([NBRQ])(?:[a-h][1-8]?|[1-8])(x?[a-h][1-8])", r"\1\2", row["san"])
        vague = re.sub(r"=[QRBN]", "", vague)
        if vague != row["san"]:
            assert judged(boxed(vague), row["fen"]) == MoveReading(Outcome.AMBIGUOUS), (vague, row)
            refused[row["category"]] += 1
    print(f"\nwithout disambiguation, all refused: {dict(refused)}")
    assert sum(refused.values()) > 700


def test_moves_of_real_games_on_the_wrong_board(san_rows: list[dict[str, Any]]) -> None:
    outcomes = Counter()
    for row, other in zip(san_rows, san_rows[1:] + san_rows[:1], strict=True):
        board = chess.Board(other["fen"])
        reading = judged(boxed(row["san"]), other["fen"])
        outcomes[reading.outcome] += 1
        try:
            assert reading == MoveReading(Outcome.LEGAL, board.parse_san(row["san"]))
        except chess.AmbiguousMoveError:
            assert reading == MoveReading(Outcome.AMBIGUOUS)
        except chess.IllegalMoveError:
            assert reading == MoveReading(Outcome.ILLEGAL)
    print(f"\non the next row's board: {dict(outcomes)}")


def test_every_null_move_on_every_board(san_rows: list[dict[str, Any]]) -> None:
    for row in san_rows:
        for text in ("--", "Z0", "0000", "@@@@", f"{row['uci'][:2] * 2}"):
            expected = Outcome.ILLEGAL if text.startswith(row["uci"][:2]) else Outcome.NULL_MOVE
            assert judged(boxed(text), row["fen"]) == MoveReading(expected)


def test_boxed_answers_of_models(shared_data: Path) -> None:
    for case in rows(shared_data / "llm_outputs_boxed" / "game_arena_parser_cases.jsonl"):
        if case["kind"] == "response":
            answer = extract(case["text"])
            if "oxed{" in case["text"]:
                assert answer.text == case["expected"], case
            else:
                assert answer.missing is Outcome.NO_BOX, case
            continue
        board = chess.Board(case["fen"])
        reading = judged(boxed(case["text"]), case["fen"])
        if case["expected"]:
            assert reading.move == board.parse_san(case["expected"]), case
        elif case["name"] == "invalid_move":
            assert reading.outcome is Outcome.ILLEGAL


EXPECTED = {
    "bestmove": {"legal": 2286, "no_box": 104, "illegal": 10},
    "predictmove": {"legal": 1473, "illegal": 862, "no_box": 64, "unparsable": 1},
}

# Labelled as no legal move, each looked at: the labels know neither "d7-f8" nor "d5c6+", and five times
# they took a tag that the reasoning only mentions for the beginning of the answer.
MISLABELLED = {
    "SFT5_GS_RL/bestmove/51": "c8e6",
    "SFT8_BM-All_RL/bestmove/32": "d7f8",
    "SFT8_BM-All_RL/bestmove/69": "g7d4",
    "SFT8_BM-All_RL/bestmove/255": "e8f8",
    "SFT1_RSPM_RL/predictmove/262": "a8b8",
    "SFT4_FBA_SFT/predictmove/336": "d5c6",
    "SFT5_GS_RL/predictmove/85": "g8h8",
    "SFT8_BM-All_RL/predictmove/50": "b6b5",
    "Scaled - BL - SFT/predictmove/235": "g3h3",
    "Scaled - BL - SFT/predictmove/284": "c8g4",
}


@pytest.mark.parametrize("task", EXPECTED)
def test_transcripts_that_name_one_move(shared_data: Path, task: str) -> None:
    outcomes = Counter()
    for row in rows(shared_data / "llm_outputs_langchess" / "compact" / f"{task}_dev.jsonl.zst"):
        assert judged(row["response"], row["fen"]) == MoveReading(Outcome.NO_BOX)  # as written: tags, no box
        reading = judged(ANSWER.sub(lambda match: boxed(match[1]), row["response"]), row["fen"])
        outcomes[reading.outcome] += 1
        answered = ANSWER.search(row["response"].rpartition("</think>")[2].partition("<think>")[0])
        assert (answered is None) == (reading.outcome is Outcome.NO_BOX), row["id"]
        if answered:
            assert (reading.outcome is Outcome.LEGAL) == (row["legal"] or row["id"] in MISLABELLED), row["id"]
        if reading.move:
            assert reading.move.uci() == MISLABELLED.get(row["id"], row["last_answer_tag"]), row["id"]
    print(f"\n{task}: {dict(outcomes)}")
    assert outcomes == EXPECTED[task]


def test_transcripts_that_list_all_legal_moves(shared_data: Path) -> None:
    outcomes = Counter()
    for row in rows(shared_data / "llm_outputs_langchess" / "compact" / "legalmoves_dev.jsonl.zst"):
        reading = judged(ANSWER.sub(lambda match: boxed(match[1]), row["response"]), row["fen"])
        outcomes[reading.outcome] += 1
        tail = row["response"].rpartition("</think>")[2].partition("<think>")[0]
        content = (ANSWER.findall(tail) or [""])[-1]
        moves = {text.replace("-", "") for text in COORDINATES.findall(content)}
        alone = not re.search(r"\w", COORDINATES.sub("", content)) and len(content) <= MAX_BOX_CHARS
        legal = {move.uci() for move in chess.Board(row["fen"]).legal_moves}
        only = next(iter(moves)) if len(moves) == 1 and alone and moves <= legal else None
        assert (reading.move.uci() if reading.move else None) == only, (row["id"], content)
        if len(moves) > 1 and alone:
            assert reading.outcome is Outcome.AMBIGUOUS, (row["id"], content)
    print(f"\nlegalmoves: {dict(outcomes)}")
    assert outcomes.total() == 2400 and outcomes["legal"] == 313


def test_transcripts_in_algebraic_notation(shared_data: Path) -> None:
    outcomes = Counter()
    for row in rows(shared_data / "llm_outputs_allenjue" / "responses_dev.jsonl.zst"):
        reading = judged(boxed(row["response"]), row["fen"])
        outcomes[reading.outcome] += 1
        single = re.fullmatch(r"\s*(?:\d+\s*\.+\s*)?(\S+)\s*", row["response"])
        assert reading.move == (san_move(single[1], row["fen"]) if single else None), row["response"]
        if len(row["response"]) > MAX_BOX_CHARS:
            assert reading.outcome in (Outcome.TOO_LONG, Outcome.TRUNCATED), row["response"]
    print(f"\nalgebraic: {dict(outcomes)}")
    assert outcomes["legal"] == 61 and outcomes.total() == 838


def san_move(text: str, fen: str) -> chess.Move | None:
    try:
        return chess.Board(fen).parse_san(text.rstrip("!?."))
    except ValueError:
        return None
