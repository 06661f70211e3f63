"""Counting games and positions, against counts made the slow way."""

import json
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chess_datasets.__main__ import main
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.reader import handle_file, read_raw_games
from chess_datasets.positions.dataset import POSITIONS
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.statistics import DuplicateCounter, GameCounter, Statistics, count_positions
from chess_datasets.store.folders import open_folder
from chess_datasets.store.jsonl import read_jsonl, write_jsonl
from chess_datasets.store.parquet import write_records
from rookery.errors import InvalidInput
from rookery.processes.workers import Workers
from rookery.trace import Phase
from tests.unit.data.texts import RUY, game

keys = st.integers(0, 2**64 - 1)


def counted(values: list[int], *, limit: int = 1 << 18) -> DuplicateCounter:
    repeats = DuplicateCounter(limit=limit)
    for value in values:
        repeats.add(value)
    return repeats


@given(st.lists(st.integers(0, 30)))
def test_few_things_are_counted_exactly(values: list[int]) -> None:
    distinct = len(set(values))
    expected = {"distinct": distinct, "copies": len(values) - distinct, "exact": True}
    assert counted(values).summary() == expected


@given(st.lists(keys), st.lists(keys), st.sampled_from([4, 64]))
def test_two_counts_make_one(first: list[int], second: list[int], limit: int) -> None:
    merged = counted(first, limit=limit)
    merged.merge(counted(second, limit=limit))
    together = counted(first + second, limit=limit)
    assert merged.level >= together.level or merged.summary() == together.summary()


def test_many_things_are_estimated_in_bounded_memory() -> None:
    scatter = 0x9E3779B97F4A7C15  # odd: multiplication by it permutes the keys
    values = [number * scatter % 2**64 for number in range(40_000)]
    repeats = counted(values + values[:10_000], limit=2048)
    summary = repeats.summary()
    assert not summary["exact"]
    assert len(repeats._seen) <= 2048
    assert summary["distinct"] == pytest.approx(40_000, rel=0.1)
    assert summary["copies"] == pytest.approx(10_000, rel=0.15)


# games


def statistics_of(path: Path, *, replay: float = 1.0) -> Statistics:
    statistics = Statistics()
    with Workers(1) as workers:
        for found in handle_file(str(path), GameCounter(str(path), replay), workers):
            statistics.merge(found)
    return statistics


def test_games_are_counted_by_their_tags(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    fast = {"TimeControl": "60+0", "WhiteElo": "1500", "BlackElo": "1700", "WhiteTitle": "BOT"}
    path.write_text(game(RUY, **fast) * 2 + game("1. d4 *", Termination="Normal") + game("1. e5 *"))
    summary = statistics_of(path).summary()
    assert (summary["games"], summary["replayed"]) == (4, 3)
    assert summary["time_control"] == {"unknown": 2, "bullet": 2}
    assert summary["elo"] == {"unknown": 2, "1600-1799": 2}
    assert summary["with"] == {"a bot": 2}
    assert summary["termination"] == {"normal": 1}
    assert summary["broken"] == {"bad_move": 1}
    assert summary["duplicates"] == {"distinct": 3, "copies": 1, "exact": True}


def test_the_sample_is_what_a_slow_count_says(sample_path: Path) -> None:
    summary = statistics_of(sample_path).summary()
    raws = list(read_raw_games(sample_path))
    assert summary["games"] == len(raws)
    results = Counter(raw.text.split('[Result "')[1].split('"')[0] for raw in raws)
    assert summary["result"] == dict(results)
    assert summary["duplicates"]["distinct"] == len({raw.id for raw in raws})


def test_phases_are_those_of_the_replayed_games(sample_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "some.pgn"
    path.write_text("\n".join(raw.text for raw in islice(read_raw_games(sample_path), 100)))
    summary = statistics_of(path).summary()
    with closing(GameCollection([path])) as collection:
        games = [collection.game(number) for number in range(100)]
    expected = {phase.value: sum(len(g.plies(phase)) for g in games if g) for phase in Phase}
    assert summary["phase"] == expected
    assert summary["positions"] == sum(expected.values())


def test_a_share_is_replayed_always_the_same(sample_path: Path) -> None:
    first, again = statistics_of(sample_path, replay=0.1), statistics_of(sample_path, replay=0.1)
    assert first == again
    assert first.replayed == pytest.approx(0.1 * first.games, rel=0.3)


# positions


def test_positions_are_counted(order: PositionOrder) -> None:
    drawn = [order.position(number, seed=1) for number in range(300)]
    summary = count_positions([*drawn, drawn[0]]).summary()
    assert summary["positions"] == 301
    assert summary["phase"] == dict(Counter(p.phase.value for p in [*drawn, drawn[0]]).most_common())
    assert sum(summary["to_move"].values()) == sum(summary["ply"].values()) == 301
    assert summary["duplicates"]["copies"] >= 1


@pytest.mark.parametrize("form", ["parquet", "jsonl", "jsonl.zst"])
def test_the_command_counts_what_sample_writes(
    form: str, order: PositionOrder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = [order.position(number, seed=1) for number in range(50)]
    folder, name = open_folder(tmp_path), f"p.{form}"
    if form == "parquet":
        write_records(folder, name, POSITIONS, drawn)
    else:
        write_jsonl(folder, name, map(asdict, drawn))
    assert main(["stats", str(tmp_path / name), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == count_positions(drawn).summary()
    assert main(["stats", str(tmp_path / name)]) == 0
    assert "50 positions" in capsys.readouterr().out


def test_the_command_counts_games(sample_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(sample_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert 0 < summary["replayed"] < summary["games"] / 20


def test_what_is_no_position_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text('{"name": "Magnus"}\n')
    assert main(["stats", str(tmp_path / "x.jsonl")]) == 2
    assert "not a position: {'name': 'Magnus'}" in capsys.readouterr().err
    (tmp_path / "y.jsonl").write_text('{"a": 1}\n{"a"\n')
    with pytest.raises(InvalidInput, match=r"y\.jsonl:2: not JSON"):
        list(read_jsonl(open_folder(tmp_path), "y.jsonl"))
