"""Dead letters are listed and put back, and no account loses its balance by it."""

from rookery.streams import RunStreams
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
