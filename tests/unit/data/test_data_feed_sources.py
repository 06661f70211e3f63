"""What the feed draws from besides games: generated positions, a fixed pool, and files of P: and A: lines."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chess_datasets.positions.distinct import canonical_fen
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.lines import MAX_FAULTY
from rookery.config.data import FeedSettings
from rookery.errors import SetupError
from rookery.prompt import render, target_of
from rookery.rookworld import (
    PolicyAnswer,
    PolicyLine,
    parse_state_line,
    policy_answer,
    policy_prompt,
    read_policy_answer,
    state_prompt,
)
from rookery.rookworld_env import step
from rookery.trace import Phase, Position
from services.data.feed import numbered_positions
from tests.rookworld_lines import policy_line, state_line

START = chess.STARTING_FEN
P_LINES = [
    policy_line(PolicyLine(START, PolicyAnswer(("e2e4", "d2d4"), (0.3, 0.2), "e2e4"))),
    policy_line(
        PolicyLine("8/8/R7/7p/P2K2k1/7r/8/8 w - - 0 56", PolicyAnswer(("a6a8",), (1.5,), "a6a8")),
        layout="compact",
    ),
]
A_LINES = [
    state_line(step(START, "g1f3")),
    state_line(step("4k3/8/8/8/8/8/4P3/4K3 b - - 0 1", "e8d8", recent=["e1e2"])),
]
LINES = [*P_LINES, *A_LINES]


def positions(count: int, **settings: Any) -> list[Position]:
    with numbered_positions(FeedSettings(**settings)) as position:
        return [position(number) for number in range(count)]


def test_generated_positions_have_the_shares_of_the_phases() -> None:
    drawn = positions(100, sources="generated", seed=3)
    assert drawn[:20] == list(map(PositionGenerator(3, least_moves=2).position, range(20)))
    phases = Counter(position.phase for position in drawn)
    assert phases[Phase.MIDDLEGAME] == pytest.approx(60, abs=18)
    assert phases[Phase.OPENING] == pytest.approx(20, abs=14)
    openings = positions(20, sources="generated", middlegame_share=0, endgame_share=0)
    assert {position.phase for position in openings} == {Phase.OPENING}


def test_a_fixed_pool_has_the_same_positions_in_every_round() -> None:
    size = 32
    drawn = positions(3 * size, sources="generated", max_positions=size, seed=5)
    assert drawn == positions(3 * size, sources="generated", max_positions=size, seed=5)
    rounds = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    assert len({canonical_fen(position.fen) for position in rounds[0]}) == size
    for other in rounds[1:]:
        assert {position.id for position in other} == {position.id for position in rounds[0]}
        assert other != rounds[0], "each round has an order of its own"
    assert positions(size, sources="generated", max_positions=size, seed=6) != rounds[0]


def test_a_pool_of_games(tmp_path: Path) -> None:
    games = tmp_path / "games.pgn"
    games.write_text('[Event "?"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 1-0\n')
    drawn = positions(8, sources=str(games), split="all", max_positions=4)
    assert len({position.id for position in drawn}) == 4
    with pytest.raises(SetupError, match="only 6 different positions: --max-positions 50 is too many"):
        positions(1, sources=str(games), split="all", max_positions=50)


def test_a_share_of_the_positions_has_a_mate_in_one() -> None:
    plain, mixed = positions(40, seed=5), positions(40, mate_share=0.3, seed=5)
    assert mixed[:10] == positions(10, mate_share=0.3, seed=5)
    changed = [number for number in range(40) if mixed[number] != plain[number]]
    assert len(changed) == pytest.approx(12, abs=7)
    assert all(has_mate_in_one(mixed[number].fen) for number in changed)


def test_without_mates_the_share_is_of_other_positions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    games = tmp_path / "games.pgn"
    games.write_text('[Event "?"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 1-0\n')
    given = {"sources": str(games), "split": "all"}
    assert positions(3, mate_share=1.0, **given) == positions(3, **given)
    assert caplog.text.count("the games hardly have a mate in one") == 1


def test_other_sources_have_no_mates() -> None:
    given = {"sources": "generated", "seed": 5}
    assert positions(20, mate_share=1.0, **given) == positions(20, **given)
    assert FeedSettings(mate_share=1.0, **given).unread() == {"mate_share": "sources = 'generated'"}
    assert not FeedSettings(mate_share=1.0).unread()


def has_mate_in_one(fen: str) -> bool:
    board = chess.Board(fen)
    return any(board.san(move).endswith("#") for move in board.legal_moves)


def _write(path: Path, rows: list[Mapping[str, Any]] | None = None) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        texts = [json.dumps(row) for row in rows] if rows is not None else LINES
        text = "".join(f"{text}\n" for text in texts).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _split(text: str, *, style: str) -> dict[str, Any]:
    """A line as a row with a prompt and an answer, as published data sets have it."""
    if text.startswith("P:"):
        prompt, answer = text[: text.index("M:")], text[text.index("M:") :]
    else:
        parts = text.split("+")
        prompt, answer = "+".join(parts[:3]) + "+", "+".join(parts[3:])
    if style == "stripped":
        prompt = prompt.rstrip("+ ")
    content = [{"role": "user", "content": prompt}] if style == "messages" else prompt
    return {"prompt": content, "answer" if style == "messages" else "completion": answer}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("lines.txt", None),
        ("lines.txt.gz", None),
        ("lines.jsonl", [{"text": text} for text in LINES]),
        ("lines.parquet", [{"text": text, "source": "x"} for text in LINES]),
        ("split.jsonl", [_split(text, style="published") for text in LINES]),
        ("stripped.jsonl", [_split(text, style="stripped") for text in LINES]),
        ("tasks.parquet", [_split(text, style="messages") for text in LINES]),
    ],
)
def test_lines_become_positions_with_their_answers(
    name: str, rows: list[Mapping[str, Any]] | None, tmp_path: Path
) -> None:
    place = _write(tmp_path / name, rows)
    drawn = positions(len(LINES), task="rookworld", sources=str(place))
    by_row = sorted(drawn, key=lambda position: position.id)
    assert [position.task for position in by_row] == ["P", "P", "A", "A"]
    for position, text in zip(by_row, LINES, strict=True):
        prompt = render(position, style="rookworld").messages[0].content
        target = target_of(position, style="rookworld")
        if position.task == "P":
            assert prompt == policy_prompt(position.fen)
            assert target == policy_answer(read_policy_answer(text[text.index("M:") :]), layout="compact")
        else:
            assert prompt + target == text
            line = parse_state_line(text)
            assert prompt == state_prompt(line.fen, line.move, line.recent)


def test_without_targets_the_questions_remain(tmp_path: Path) -> None:
    place = _write(tmp_path / "lines.txt")
    drawn = positions(4, task="rookworld", sources=str(place), targets=False)
    assert {position.target for position in drawn} == {""}
    assert Counter(position.task for position in drawn) == {"P": 2, "A": 2}


def test_a_style_that_asks_for_another_task_has_no_target(tmp_path: Path) -> None:
    drawn = positions(4, task="rookworld", sources=str(_write(tmp_path / "lines.txt")))
    asked = [position for position in drawn if position.task == "A"]
    assert asked
    assert [target_of(position, style="rookworld-p") for position in asked] == ["", ""]


def test_faulty_lines_are_passed_over_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    over = state_line(step("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "h8g8"))
    place = tmp_path / "lines.txt"
    illegal = LINES[0].replace("B: e2e4", "B: e2e5")
    place.write_text("\n".join([LINES[0], "P: no line at all", over, illegal, "", LINES[2]]))
    drawn = positions(4, task="rookworld", sources=str(place))
    assert {position.fen for position in drawn} == {START}
    assert f"passed over: {str(place)!r}, line 2: not a P: line: 'P: no line at all'" in caplog.text
    assert "line 4: the best move 'e2e5' is not legal" in caplog.text
    assert "line 3: no legal move in" in caplog.text


def test_labels_that_contradict_their_evaluations_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The published lines name the worst of the five moves if Black is to move."""
    place = tmp_path / "lines.txt"
    place.write_text(
        policy_line(PolicyLine(START, PolicyAnswer(("e2e4", "d2d4"), (0.3, 0.2), "d2d4"))) + "\n" + LINES[1]
    )
    positions(1, task="rookworld", sources=str(place))
    assert "the best move of 1 of the first 2 P: lines is not the one with the highest" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", "\n", "has no line"),
        ("absent.txt", None, "absent.txt"),
        ("other.jsonl", '{"question": 1}', r"row 1: neither `text` nor `prompt` with one of completion"),
        ("broken.jsonl", '{"text"', "not JSON"),
        ("no.parquet", "PAR1", "not a Parquet file"),
        ("noise.txt", "P: noise\n" * (MAX_FAULTY + 2), f"more than {MAX_FAULTY} faulty lines in a row"),
    ],
)
def test_a_file_without_lines_is_refused(
    name: str, content: str | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SetupError, match=message):
        positions(1, task="rookworld", sources=str(tmp_path / name))


@pytest.mark.shared_data
def test_published_lines(shared_data: Path) -> None:
    file = shared_data / "rookworld" / "rook" / "rook_val_dev_250.txt"
    drawn = positions(250, task="rookworld", sources=str(file))
    assert len({position.id for position in drawn}) == 250
    assert all(read_policy_answer(position.target) for position in drawn)
