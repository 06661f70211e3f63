"""`python -m launcher`: the `rookery` command, for when it is not on the PATH."""

import sys

from launcher.command import main

if __name__ == "__main__":
    sys.exit(main())
