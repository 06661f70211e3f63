"""`python -m chess_datasets COMMAND`: `rookery data COMMAND`."""

import sys
from functools import partial

from rookery import command_line

main = partial(command_line.main, prefix="data")

if __name__ == "__main__":
    sys.exit(main())
