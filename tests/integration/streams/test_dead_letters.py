"""Dead letters are listed and put back, and no account loses its balance by it."""

from rookery.streams import RunStreams
from rookery.streams.reader import DeadLetters, Entry
from tests import builders


def take(streams: RunStreams, stream: str, *, group: str) -> Entry:
    """The next entry. The first reading of a group creates it, and has none."""
    for _ in range(2):
        if entries := streams.read(stream, group=group, consumer="c", count=1, block_s=0.1):
            return entries[0]
    raise AssertionError(f"no entry in {stream}")


def test_a_group_that_is_put_back_is_trained_and_accounted_for(redis_url: str) -> None:
    streams, letters = RunStreams(redis_url, "r"), DeadLetters(redis_url, "r")
    builders.feed(streams, 1)
    position = take(streams, "positions", group="rollouts")
    group = builders.group(0, run="r")
    assert streams.publish_group(group, entry_id=position.id, consumer_group="rollouts")
    held = take(streams, "traces", group="trainer")
    streams.dead_letter("traces", held.id, group="trainer", reason="too long for the model")
    (letter,) = letters.dead_letters()
    assert (letter.stream, letter.entry, letter.reason) == ("traces", held.id, "too long for the model")
    assert letter.data == held.data
    assert letters.replay_dead(letter)
    again = take(streams, "traces", group="trainer")
    assert (again.id != held.id, again.data) == (True, held.data)
    assert streams.overview().astray == 0
    streams.settle([again.id], group="trainer", result="trained", epoch=streams.take_over())
    assert (streams.overview().astray, streams.overview().counts.trained) == (0, 1)
    assert letters.dead_letters() == []
    assert not letters.replay_dead(letter)


def test_a_position_that_is_put_back_is_delivered_again(redis_url: str) -> None:
    streams, letters = RunStreams(redis_url, "r"), DeadLetters(redis_url, "r")
    builders.feed(streams, 1)
    held = take(streams, "positions", group="rollouts")
    streams.dead_letter("positions", held.id, group="rollouts", reason="engines died on it")
    assert letters.replay_dead(letters.dead_letters()[0])
    again = take(streams, "positions", group="rollouts")
    assert again.data == held.data
