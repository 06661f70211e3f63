"""`python -m arena COMMAND`: `rookery arena COMMAND`."""

import sys
from functools import partial

from rookery import command_line

main = partial(command_line.main, prefix="arena")

if __name__ == "__main__":
    sys.exit(main())
