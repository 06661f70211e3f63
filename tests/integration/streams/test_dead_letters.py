"""Dead letters are listed and put back, and no account loses its balance by it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rookery.errors import InvalidInput
from rookery.streams import DeadLetter, RunStreams, dump_letters, load_letters
from tests import builders


def test_a_group_that_is_put_back_is_trained_and_accounted_for(redis_url: str) -> None:
    streams = RunStreams(redis_url, "r")
    builders.feed(streams, 1)
    (position,) = builders.read(streams.positions, 1)
    group = builders.group(0, run="r")
    assert streams.groups.publish(group, entry_id=position.id)
    (held,) = builders.read(streams.groups, 1)
    streams.groups.dead_letter(held.id, reason="too long for the model")
    (letter,) = streams.dead.letters()
    assert (letter.stream, letter.entry, letter.reason) == ("traces", held.id, "too long for the model")
    assert letter.data == held.data
    assert streams.dead.replay(letter)
    (again,) = builders.read(streams.groups, 1)
    assert (again.id != held.id, again.data) == (True, held.data)
    assert streams.overview().astray == 0
    streams.groups.settle([again.id], result="trained", epoch=streams.take_over())
    assert (streams.overview().astray, streams.overview().counts.trained) == (0, 1)
    assert streams.dead.letters() == []
    assert not streams.dead.replay(letter)


def test_a_position_that_is_put_back_is_delivered_again(redis_url: str) -> None:
    streams = RunStreams(redis_url, "r")
    builders.feed(streams, 1)
    (held,) = builders.read(streams.positions, 1)
    streams.positions.dead_letter(held.id, reason="engines died on it")
    assert streams.dead.replay(streams.dead.letters()[0])
    (again,) = builders.read(streams.positions, 1)
    assert again.data == held.data


def test_of_many_letters_the_newest_contents_are_read(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.streams.dead._LETTERS_AT_ONCE", 2)
    streams = RunStreams(redis_url, "r")
    for entry in builders.generated(streams, 5):
        streams.groups.dead_letter(entry.id, reason="too long")
    letters = streams.dead.letters()
    assert [letter.id for letter in letters] == sorted({letter.id for letter in letters})
    size = len(letters[-1].data)
    assert all(letter.data for letter in letters)
    newest = streams.dead.letters(most_bytes=2.5 * size)
    assert newest == [replace(letter, data=b"") for letter in letters[:3]] + letters[3:]


def test_a_file_of_dead_letters_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [
        DeadLetter(f"{number}-0", "traces", "7-1", "no é\n\u2028", bytes([number]) * 100)
        for number in range(3)
    ]
    file = tmp_path / "dead.jsonl"
    file.write_bytes(dump_letters(letters))
    assert load_letters(file) == letters
    for damaged in (b'{"id": "1-0"}', b"\xff", b"[" * 100_000, b"\n"):
        file.write_bytes(dump_letters(letters) + damaged)
        with pytest.raises(InvalidInput, match=r"dead.jsonl:4: .{,200} is no dead letter: "):
            load_letters(file)
    monkeypatch.setattr("rookery.streams.dead._LARGEST_FILE", 100)
    with pytest.raises(InvalidInput, match=r"dead.jsonl has \d+ bytes, more than 100"):
        load_letters(file)
