"""`python -m scripts.dashboards` writes deploy/grafana/dashboards/*.json."""

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


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
