import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import chess
import pytest
from fastapi import FastAPI, Response
from hypothesis import given
from hypothesis import strategies as st

from arena.positions import choose, fetch, read_jsonl, same_question
from arena.session import held_out
from rookery.config.arena import QuestionSettings
from rookery.errors import InvalidInput, PeerFault
from rookery.fen import FenReport
from tests.servers import serve_http
from tests.unit.rookery.test_fen import UNUSABLE


def write(path: Path, positions) -> Path:
    path.write_text("".join(json.dumps(asdict(p)) + "\n" for p in positions))
    return path


def test_round_trip(tmp_path: Path, positions) -> None:
    path = write(tmp_path / "p.jsonl", positions)
    text = path.read_text()
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        path.write_text(text, encoding=encoding)
        assert read_jsonl(path) == positions


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "p.jsonl:1: not JSON"),
        ("[]", "p.jsonl:1: not a position"),
        ('{"fen": "nonsense"}', "nonsense"),
        (json.dumps({"fen": chess.STARTING_FEN, "id": "a"}), "KeyError"),
        (
            json.dumps(
                {
                    "fen": "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1",
                    "id": "a",
                    "ply": 9,
                    "phase": "endgame",
                    "game_id": "g",
                }
            ),
            "no legal move in '7k/5Q2",
        ),
    ],
)
def test_what_is_no_position_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "p.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidInput, match=said.replace("[", r"\[")):
        read_jsonl(tmp_path / "p.jsonl")


BAD = (
    ("{", "not JSON"),
    ("[]", "not a position"),
    ({"fen": None}, "not a FEN: None"),
    ({"fen": "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1"}, "impossible position .* opposite check"),
    ({"fen": "8/4P1k1/8/8/8/8/8/8 w - - 0 1"}, "no white king"),
    ({"fen": "bqnbnrkr/pppppppp/8/8/8/8/PPPPPPPP/BQNBNRKR w HFhf - 0 1"}, "Chess960"),
    ({"phase": "late"}, "not a position"),
    ({"last_moves": ["e2e9"]}, "not a position"),
    ({"last_moves": [5]}, "not a position"),
    ({"ply": float("inf")}, "not a position"),
)


def test_lines_that_are_no_possible_position_are_left_out_and_listed(tmp_path: Path, positions) -> None:
    good, text, path = asdict(positions[0]), [json.dumps(asdict(positions[1]))], tmp_path / "p.jsonl"
    text += [line if isinstance(line, str) else json.dumps(good | line) for line, _ in BAD]
    path.write_text("\n".join([*text, json.dumps(good)]))
    report = FenReport()
    assert read_jsonl(path, report=report) == [positions[1], positions[0]]
    assert report.skipped_count == len(BAD)
    for number, (line, (_, why)) in enumerate(zip(report.skipped, BAD, strict=True), start=2):
        assert re.match(rf"p\.jsonl:{number}: .*{why}", line), line
    with pytest.raises(InvalidInput, match=r"p\.jsonl:2: not JSON"):
        read_jsonl(path)  # nothing that is to be excluded may be passed over


@pytest.mark.parametrize(("given", "used"), UNUSABLE)
def test_flags_nobody_can_use_are_dropped_and_counted(
    tmp_path: Path, positions, given: str, used: str
) -> None:
    report = FenReport()
    [read] = read_jsonl(write(tmp_path / "p.jsonl", [replace(positions[0], fen=given)]), report=report)
    assert (read.fen, report.dropped.total()) == (used, 1)


async def test_what_is_excluded_is_counted(tmp_path: Path, positions, caplog) -> None:
    asked = write(tmp_path / "asked.jsonl", positions)
    mirrored = [replace(position, fen=chess.Board(position.fen).mirror().fen()) for position in positions[:3]]
    seen = write(tmp_path / "seen.jsonl", mirrored)
    settings = QuestionSettings(positions=asked, exclude=seen, count=1)
    chosen = await held_out(settings)
    assert (list(chosen.positions), chosen.excluded) == ([positions[3]], 3)
    assert "asked.jsonl: left out because seen.jsonl has them: 3" in caplog.text
    (tmp_path / "seen.parquet").write_bytes(b"PAR1\x15\x04\xff")
    with pytest.raises(InvalidInput, match=r"seen\.parquet.*not JSON lines"):
        await held_out(settings.model_copy(update={"exclude": tmp_path / "seen.parquet"}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.jsonl"):
        read_jsonl(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("body", ["<html>a proxy</html>", "[]", "{}", '{"positions": null}'])
async def test_an_answer_without_positions_is_a_fault_of_the_service(body: str) -> None:
    app = FastAPI()
    app.get("/v1/positions")(lambda: Response(body))
    async with serve_http(app) as url:
        with pytest.raises(PeerFault, match=f"/v1/positions.*{re.escape(repr(body))}"):
            await fetch(url, count=1, seed=0)


def test_too_few_positions_says_how_many_there_are(positions) -> None:
    with pytest.raises(
        InvalidInput,
        match="5 positions were asked for, but there are only 3: 2 of 5 are duplicates or excluded",
    ):
        choose([*positions, positions[0]], count=5, seed=0, seen=[positions[1]])


def test_clocks_and_colours_do_not_make_a_new_question(positions) -> None:
    board = chess.Board(positions[0].fen)
    mirrored = replace(positions[0], id="m", fen=board.mirror().fen())
    later = replace(positions[0], id="l", fen=positions[0].fen.replace("0 1", "12 30"))
    assert choose([mirrored, later, *positions], count=4, seed=0)[0] == mirrored
    with pytest.raises(InvalidInput):
        choose([mirrored, later], count=1, seed=0, seen=[positions[0]])


@given(st.integers(0, 2**40), st.integers(1, 4))
def test_the_seed_decides(positions, seed: int, count: int) -> None:
    drawn = choose(positions, count=count, seed=seed)
    assert drawn == choose(positions, count=count, seed=seed)
    assert len({same_question(position.fen) for position in drawn}) == count
