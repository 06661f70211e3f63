from rookery.streams import Entry
from services.inference.rollouts.admission import InFlight


def entry(number: int) -> Entry:
    return Entry(f"{number}-0", b"")


def test_an_entry_is_at_work_once() -> None:
    in_flight = InFlight()
    in_flight.add([entry(1)])
    assert in_flight.start(now=0, limit=9) == [entry(1)]
    in_flight.add([entry(1)])
    assert in_flight.start(now=0, limit=9) == []


def test_the_oldest_start_first_and_only_so_many() -> None:
    in_flight = InFlight()
    in_flight.add([entry(1), entry(2), entry(3)])
    assert [e.id for e in in_flight.start(now=0, limit=2)] == ["1-0", "2-0"]
    assert in_flight.running == 2
    assert len(in_flight) == 3


def test_each_fault_puts_off_for_longer() -> None:
    in_flight = InFlight()
    in_flight.add([entry(1)])
    now, waits = 0.0, []
    for _ in range(8):
        assert in_flight.start(now=now, limit=1)
        wait_s = in_flight.postpone("1-0", now=now)
        assert not in_flight.start(now=now + wait_s / 2, limit=1)
        waits.append(wait_s)
        now += wait_s
    assert waits == sorted(waits)


def test_a_settled_entry_is_gone() -> None:
    in_flight = InFlight()
    in_flight.add([entry(1)])
    in_flight.start(now=0, limit=1)
    in_flight.remove("1-0")
    assert (len(in_flight), in_flight.running, in_flight.ids) == (0, 0, [])
