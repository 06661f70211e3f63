"""Writes deploy/grafana/dashboards/*.json; `--check` fails where a file is not what the code says.

.venv/bin/python -m scripts.dashboards [--check]
"""

import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from scripts.dashboards import inference, learning, loop, reward, streams
from scripts.dashboards.panel import build

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards"
BOARDS = (loop.BOARD, streams.BOARD, reward.BOARD, inference.BOARD, learning.BOARD)


def texts() -> dict[Path, str]:
    """What each file should hold."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {FOLDER / f"{board.name}.json": encoder.encode(build(board).build()) + "\n" for board in BOARDS}


def main(argv: list[str]) -> int:
    """Writes or checks; the exit status."""
    wanted = texts()
    if "--check" not in argv:
        for path, text in wanted.items():
            path.write_text(text)
        return 0
    found = {path: path.read_text() for path in FOLDER.glob("*.json")}
    wrong = sorted(path.name for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))
    if wrong:
        print(f"{', '.join(wrong)} in {FOLDER}: not what scripts/dashboards says; type: make dashboards")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
