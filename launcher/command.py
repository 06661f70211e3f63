"""The `rookery` command, and `python -m launcher` for when it is not on the PATH: `rookery.command_line`.

Until `main` handles Ctrl-C, it ends the process without a word: imports would print where they were.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from rookery.command_line import main as main
