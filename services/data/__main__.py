"""`python -m services.data`: positions over HTTP and gRPC, as `rookery serve data`."""

import sys
from functools import partial

from rookery import command_line

main = partial(command_line.main, prefix="serve data")

if __name__ == "__main__":
    sys.exit(main())
