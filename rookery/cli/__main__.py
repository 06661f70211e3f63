"""`python -m rookery.cli`: the `rookery` command where it is not on the PATH."""

import sys

from rookery.cli import main

sys.exit(main())
