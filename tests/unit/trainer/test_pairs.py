"""Pairs from files: split by game without leaks, too long ones left out, nonsense named."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery.errors import InvalidInput
from services.trainer.examples.pairs import PairExamples, PairSplit, read_pairs
from services.trainer.finetune.model import load_chat_tokenizer
from tests.unit.trainer.preferences import write_pairs

WIDE = json.dumps(
    {
        "prompt": [{"role": "user", "content": "x"}],
        **{name: [{"role": "assistant", "content": name}] for name in ("chosen", "rejected")},
        "gap": "wide",
    }
)


def _read(path: Path, model: Path, *, held_out: float = 0.3, max_length: int = 200) -> PairSplit:
    return read_pairs(path, load_chat_tokenizer(model), max_length=max_length, held_out=held_out)


def test_games_are_held_out_whole(tiny_model: Path, tmp_path: Path) -> None:
    shares = _read(write_pairs(tmp_path / "pairs.jsonl", count=200, games=40), tiny_model)
    train, held_out = ({pair.game for pair in share} for share in (shares.train, shares.held_out))
    assert not train & held_out
    assert len(train | held_out) == 40
    assert shares.counts == {
        "train": len(shares.train),
        "held_out": 200 - len(shares.train),
        "left_out_leaking": 0,
        "left_out_too_long": 0,
    }
    assert 5 <= len(held_out) <= 20


def test_a_position_of_the_exam_is_not_trained_on_in_another_game(tiny_model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", count=60, games=60)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    doubles = [{**row, "game_id": f"again {row['game_id']}", "fen": row["fen"] + "99"} for row in lines]
    path.write_text("\n".join(map(json.dumps, lines + doubles)))
    shares = _read(path, tiny_model)
    assert shares.leaking > 0
    assert not {pair.position for pair in shares.train} & {pair.position for pair in shares.held_out}


def test_the_split_does_not_depend_on_the_order(tiny_model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", count=80)
    before = {pair.position for pair in _read(path, tiny_model).held_out}
    path.write_text("\n".join(reversed(path.read_text().splitlines())))
    assert {pair.position for pair in _read(path, tiny_model).held_out} == before


def test_parquet_gives_the_pairs_of_the_lines(tiny_model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", count=30)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "pairs.parquet")
    assert _read(path, tiny_model) == _read(tmp_path / "pairs.parquet", tiny_model)


def test_an_example_has_the_chosen_first(tiny_model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", count=30)
    tokenizer, shares = load_chat_tokenizer(tiny_model), _read(path, tiny_model)
    row = next(
        row
        for row in map(json.loads, path.read_text().splitlines())
        if row["prompt"][0]["content"] in tokenizer.decode(shares.train[0].example.prompt_ids)
    )
    [example] = PairExamples(shares.train).examples([0])
    said = [tokenizer.decode(answer) for answer in example.answers]
    assert said == [row[name][0]["content"] + "<|end|>" for name in ("chosen", "rejected")]
    assert example.gap == row["gap"]


def test_what_is_too_long_is_left_out_and_counted(tiny_model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.jsonl", count=40)
    row = json.loads(path.read_text().splitlines()[0])
    row["rejected"][0]["content"] = "e2" * 300
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    assert _read(path, tiny_model).survey.left_out == 1
    with pytest.raises(InvalidInput, match=r"41 of 41 examples in .* do not fit into --max-length 20"):
        _read(path, tiny_model, max_length=20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing or empty"),
        ("[1]\n", r"pairs.jsonl:1: not a preference pair: b'\[1\]"),
        ("{nonsense\n", r"pairs.jsonl:1: not JSON: b'\{nonsense"),
        ('\n\n{"chosen": []}\n', "pairs.jsonl:3: not a preference pair: it lacks prompt, rejected"),
        ('{"prompt": "x", "chosen": [], "rejected": []}\n', "not a list of messages: 'x'"),
        ('{"prompt": ["x"], "chosen": [], "rejected": []}\n', "not a message of role and content: 'x'"),
        ("\xff\n", "not JSON"),
        (WIDE, "pairs.jsonl:1: the gap is not a finite number: 'wide'"),
        (
            '{"prompt": [{"role": "user", "content": "x"}], "rejected": [],'
            ' "chosen": [{"role": "user", "content": "y"}]}\n',
            "not a preference pair: the last message is not the assistant's",
        ),
    ],
)
def test_what_is_no_pair_is_named(tiny_model: Path, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidInput, match=message):
        _read(path, tiny_model)


def test_an_empty_share_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither share may be empty"):
        _read(write_pairs(tmp_path / "pairs.jsonl", count=1), tiny_model)
