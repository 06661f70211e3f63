"""The data sets of `rookery data tasks`: whole, described, resumable, and the same for the same flags."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import chess
import pytest

from chess_datasets.__main__ import main
from chess_datasets.positions.distinct import MAX_REPEATED, PositionKeys, position_key
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.positions.numbered import PART_SIZE, NumberedPositions, Shard, make_parts, make_records
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.datasets import Parts
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records
from chess_datasets.tasks.dataset import TaskRecipe, write_tasks
from chess_datasets.tasks.example import EXAMPLES, Example
from rookery.errors import InvalidInput
from rookery.trace import Position
from tests.unit.data.texts import RUY, game

OPENINGS = NumberedPositions(PositionGenerator(shares=Shares(1, 0, 0)).position)
PUZZLES = (
    "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags\n"
    "easy,6k1/5ppp/8/8/8/8/r4PPP/1R4K1 b - - 0 30,a2a3 b1b8,800,75,94,1000,mateIn1,https://lichess.org/a#1,\n"
    "hard,6k1/5ppp/8/8/8/8/r4PPP/1R4K1 b - - 0 30,a2a3 b1b8,2400,75,94,1000,mateIn1,https://lichess.org/b#1,\n"
    "broken,6k1/5ppp/8/8/8/8/r4PPP/1R4K1 b - - 0 30,a2a3 b1b9,800,75,94,1000,mateIn1,https://lichess.org/c#1,\n"
)


def run(*argv: str, out: Path) -> dict[str, Any]:
    assert main(["tasks", *argv, "--out", str(out)]) == 0
    return dict(json.loads((out / "manifest.json").read_text()))


def examples_in(out: Path) -> list[Example]:
    return list(read_records(open_folder(out), "tasks.parquet", EXAMPLES))


def test_a_data_set_and_what_stands_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["next-fen", "--count", "5", "--seed", "3", "--jsonl", "chat.jsonl", "--text", "lines.txt"]
    manifest = run(*flags, out=tmp_path / "one")
    examples = examples_in(tmp_path / "one")
    assert capsys.readouterr().err == "5 examples: {'next-fen': 5}\n"
    assert [example.id for example in examples] == [f"generated:3:{number}" for number in range(5)]
    lines = (tmp_path / "one" / "lines.txt").read_text()
    texts = ["\n".join(turn["content"] for turn in example.messages) for example in examples]
    assert lines == "".join(f"{text}\n\n" for text in texts)
    chats = [json.loads(line) for line in (tmp_path / "one" / "chat.jsonl").read_text().splitlines()]
    about = [{"id": e.id, "task": "next-fen", "fen": e.fen, "move": e.move} for e in examples]
    assert chats == [{"messages": e.messages, **fields} for e, fields in zip(examples, about, strict=True)]
    assert (manifest["kind"], manifest["examples"], manifest["by_task"]) == ("examples", 5, {"next-fen": 5})
    assert [output["path"] for output in manifest["outputs"]] == ["tasks.parquet", "chat.jsonl", "lines.txt"]
    assert run(*flags, out=tmp_path / "two") == manifest
    assert {path.name for path in (tmp_path / "one").iterdir() if path.is_file()} == {
        "tasks.parquet", "chat.jsonl", "lines.txt", "manifest.json",
    }  # fmt: skip


def test_positions_come_from_games_where_they_are_named(tmp_path: Path) -> None:
    source = tmp_path / "games.pgn"
    source.write_text(game(RUY))
    manifest = run(
        "legal-moves", "--count", "4", "--source", str(source), "--split", "all", "--format", "uci",
        out=tmp_path / "out",
    )  # fmt: skip
    assert manifest["terms"]["positions"]["split"] == "all"
    assert manifest["terms"]["recipe"]["form"] == "uci"
    assert all("Moves (UCI): " in example.prompt[0].content for example in examples_in(tmp_path / "out"))


def test_puzzles_are_filtered_and_the_broken_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "puzzles.csv"
    table.write_text(PUZZLES)
    manifest = run(
        "puzzle", "--puzzles", str(table), "--count", "9", "--max-rating", "1000", out=tmp_path / "out"
    )
    [example] = examples_in(tmp_path / "out")
    assert (example.id, example.answer) == ("puzzle:easy:0", "\\boxed{Rb8#}")
    assert manifest["terms"]["puzzles"]["rows"] == 3
    assert manifest["terms"]["skipped"] == {"bad_move": 1}
    said = capsys.readouterr().err
    assert f"skipped {table} row 3: bad_move: broken: " in said
    assert "9 were asked for; there are only 1" in said


def test_puzzles_of_an_exam_are_left_out_and_the_themes_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, exam = tmp_path / "puzzles.csv", tmp_path / "exam.csv"
    other = (
        "other,4k3/8/8/8/8/8/q7/1R2K3 b - - 0 30,a2a3 b1b8,900,75,94,1000,short fork,https://lichess.org/d#1,"
    )
    table.write_text(f"{PUZZLES}{other}\n")
    exam.write_text(PUZZLES.replace("b1b9", "b1b8"))
    flags = ["puzzle", "--puzzles", str(table), "--count", "9", "--balance-themes", "--exam", str(exam)]
    terms = run(*flags, out=tmp_path / "out")["terms"]
    assert [example.id for example in examples_in(tmp_path / "out")] == ["puzzle:other:0"]
    assert (terms["in_exams"], terms["by_theme"]) == (2, {"short": 1, "fork": 1})
    assert [one["path"] for one in terms["exams"]] == ["exam.csv"]
    said = capsys.readouterr().err
    assert "9 were asked for; there are only 1" in said
    assert "left out because --exam files have them: 2" in said


def test_two_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["next-fen", "--count", "1", "--jsonl", "x.jsonl", "--text", "x.jsonl", "--out", str(tmp_path)]
    assert main(["tasks", *flags]) == 2
    assert "--jsonl and --text have the same name: 'x.jsonl'" in capsys.readouterr().err


def test_puzzles_need_their_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "puzzle", "--count", "1", "--out", str(tmp_path)]) == 2
    assert "the task puzzle needs --puzzles FILE" in capsys.readouterr().err


def test_flags_that_say_nothing_to_puzzles_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--source", "games.pgn", "--random-moves", "0.1", "--nodes", "9", "--ray", "auto"]
    argv = ["tasks", "puzzle", "--puzzles", "p.csv", "--count", "1", "--out", str(tmp_path), *flags]
    assert main(argv) == 2
    assert "--source, --random-moves, --nodes, --ray: no effect" in capsys.readouterr().err


WANTED = PART_SIZE + 20
Draw: TypeAlias = Callable[[int], Position]


class Stop(Exception):
    pass


def in_turn(recipe: TaskRecipe) -> Callable[[Iterable[Shard]], Iterator[list[tuple[int, Example | None]]]]:
    """The work of one worker, in this process."""
    return partial(map, partial(make_records, recipe.example, None))


def _make(out: Path, *, stop_after: int | None = None, draw: Draw = OPENINGS.position) -> list[int]:
    """How many examples were reported at a time: first those of finished parts."""
    made: list[int] = []

    def advance(count: int) -> None:
        made.append(count)
        if sum(made) == stop_after:
            raise Stop

    parts = Parts(open_folder(out), EXAMPLES, terms={})
    make_parts(
        NumberedPositions(draw), parts, in_turn(TaskRecipe("next-fen")), wanted=WANTED, advance=advance
    )
    examples = (example for part in sorted(parts.done) for example in parts.read(part))
    write_tasks(examples, open_folder(out), terms={})
    return made


def _parts(out: Path) -> list[int]:
    """Examples by part of the positions they are of."""
    numbers = Counter(int(one.id.rpartition(":")[2]) // PART_SIZE for one in examples_in(out))
    return [numbers[part] for part in sorted(numbers)]


def test_what_was_stopped_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    assert _make(tmp_path / "whole") == [0, *[1] * WANTED]
    first, *_ = _parts(tmp_path / "whole")
    assert first < PART_SIZE  # openings come again
    with pytest.raises(Stop):
        _make(tmp_path / "stopped", stop_after=PART_SIZE + 7)
    draw = Mock(side_effect=OPENINGS.position)
    assert _make(tmp_path / "stopped", draw=draw) == [first, *[1] * (WANTED - first)]
    assert min(number for (number,), _ in draw.call_args_list) == PART_SIZE, (
        "finished parts are not drawn again"
    )
    whole, stopped = ((tmp_path / name / "tasks.parquet").read_bytes() for name in ("whole", "stopped"))
    assert whole == stopped


def test_a_supply_that_ends_gives_what_it_has(tmp_path: Path) -> None:
    supply = NumberedPositions(OPENINGS.position, size=3)
    parts = Parts(open_folder(tmp_path), EXAMPLES, terms={})
    make_parts(supply, parts, in_turn(TaskRecipe("legal-moves")), wanted=100, advance=lambda count: None)
    assert sum(parts.counts(part)["records"] for part in parts.done) == 3


def test_no_question_comes_twice_nor_from_an_exam(tmp_path: Path) -> None:
    board = chess.Board()
    first = OPENINGS.position(0)
    others = [replace(first, id=str(n), fen=fen) for n, fen in enumerate((board.fen(), board.mirror().fen()))]
    asked = OPENINGS.position(1)
    positions = [first, *others, first, asked, OPENINGS.position(2)]
    supply = NumberedPositions(
        positions.__getitem__, size=len(positions), excluded=PositionKeys([position_key(asked.fen)])
    )
    parts = Parts(open_folder(tmp_path), EXAMPLES, terms={})
    work = in_turn(TaskRecipe("next-fen"))
    for _ in range(2):  # the second time, the part is done
        assert make_parts(supply, parts, work, wanted=100, advance=lambda count: None) == 1
    made = [example.id for part in sorted(parts.done) for example in parts.read(part)]
    assert made == [first.id, "0", OPENINGS.position(2).id]


def test_the_end_of_a_file_is_reached_however_many_positions_come_again(tmp_path: Path) -> None:
    first, last = OPENINGS.position(0), OPENINGS.position(1)
    positions = [*[first] * (MAX_REPEATED + 2), last]
    parts = Parts(open_folder(tmp_path), EXAMPLES, terms={})
    supply = NumberedPositions(positions.__getitem__, size=len(positions))
    make_parts(supply, parts, in_turn(TaskRecipe("next-fen")), wanted=2, advance=lambda count: None)
    assert [example.id for part in sorted(parts.done) for example in parts.read(part)] == [first.id, last.id]


def test_positions_that_only_come_again_are_an_end(tmp_path: Path) -> None:
    few = NumberedPositions(lambda number: OPENINGS.position(number % 3))
    parts = Parts(open_folder(tmp_path), EXAMPLES, terms={})
    make_parts(few, parts, in_turn(TaskRecipe("next-fen")), wanted=100, advance=lambda count: None)
    assert sum(parts.counts(part)["records"] for part in parts.done) == 3


def test_an_unknown_task_is_named(tmp_path: Path) -> None:
    parts = Parts(open_folder(tmp_path), EXAMPLES, terms={})
    with pytest.raises(InvalidInput, match="no examples of 'haiku'"):
        make_parts(OPENINGS, parts, in_turn(TaskRecipe("haiku")), wanted=1, advance=lambda count: None)
