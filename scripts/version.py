"""Checks that the newest entry of the changelog is the version of the package."""

import re
import sys
from pathlib import Path

import rookery

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def main() -> int:
    """0 when they agree."""
    found = re.search(r"^## \[(\d+\.\d+\.\d+)\]", CHANGELOG.read_text(), re.MULTILINE)
    newest = found[1] if found else None
    if newest != rookery.__version__:
        sys.stderr.write(f"CHANGELOG.md ends at {newest}, rookery.__version__ is {rookery.__version__}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
