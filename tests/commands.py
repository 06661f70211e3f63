"""Commands called inside the test's process: one of its own would import everything once more."""

import io
import logging
import signal
import subprocess
from collections.abc import Callable, Sequence
from unittest import mock


def call(
    main: Callable[[list[str]], int | None], argv: Sequence[object], *, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    """What `main(argv)` returns and prints. What its own child processes print is not seen."""
    given, printed, said = (io.TextIOWrapper(io.BytesIO(text)) for text in (stdin.encode(), b"", b""))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    words, status, root = [str(word) for word in argv], None, logging.getLogger()
    logs = root.handlers[:], root.level
    with mock.patch.multiple("sys", stdin=given, stdout=printed, stderr=said):
        try:
            status = main(words)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) or ended.code is None else 1
            if isinstance(ended.code, str):
                said.write(ended.code)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            root.handlers, root.level = logs  # `configure` has replaced them
    texts = []
    for stream in (printed, said):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(words, status or 0, *texts)
