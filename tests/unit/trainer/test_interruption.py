"""Signals while a run learns."""

import os
import signal
import threading

import pytest

from services.trainer.finetune.loop import graceful_stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_is_noted_and_a_second_would_end_the_process(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with graceful_stop() as stop:
        assert stop.signal_number == 0
        os.kill(os.getpid(), number)
        assert stop.signal_number == number
        now = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
        assert now == [signal.SIG_DFL, signal.SIG_DFL]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    assert "a second signal ends the run at once" in capfd.readouterr().err


def test_in_another_thread_nothing_is_heeded() -> None:
    found: list[object] = []

    def work() -> None:
        with graceful_stop() as stop:
            found.append((stop.signal_number, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(0, signal.getsignal(signal.SIGINT))]
