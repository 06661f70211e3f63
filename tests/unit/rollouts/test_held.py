from rookery.streams import Entry
from services.inference.rollouts.held import Held


def entry(number: int) -> Entry:
    return Entry(f"{number}-0", b"")


def test_an_entry_is_at_work_once() -> None:
    held = Held()
    held.add([entry(1)])
    assert held.start(now=0, limit=9) == [entry(1)]
    held.add([entry(1)])
    assert held.start(now=0, limit=9) == []


def test_the_oldest_start_first_and_only_so_many() -> None:
    held = Held()
    held.add([entry(1), entry(2), entry(3)])
    assert [e.id for e in held.start(now=0, limit=2)] == ["1-0", "2-0"]
    assert held.running == 2
    assert len(held) == 3


def test_each_fault_puts_off_for_longer() -> None:
    held = Held()
    held.add([entry(1)])
    now, waits = 0.0, []
    for _ in range(8):
        assert held.start(now=now, limit=1)
        wait_s = held.postpone("1-0", now=now)
        assert not held.start(now=now + wait_s / 2, limit=1)
        waits.append(wait_s)
        now += wait_s
    assert waits == sorted(waits)


def test_a_settled_entry_is_gone() -> None:
    held = Held()
    held.add([entry(1)])
    held.start(now=0, limit=1)
    held.settle("1-0")
    assert (len(held), held.running, held.ids) == (0, 0, [])
