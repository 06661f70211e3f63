"""Pins images by digest: asks their registries, and writes `NAME:TAG@sha256:...` wherever one is named.

Needs docker with buildx and a network. A tag can be moved to another image, a digest cannot; run it again to
take what the tags now stand for.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FILES = [
    *(ROOT / name for name in (".env", "docker-compose.yml", "deploy/helm/rookery/values.yaml")),
    *(path for folder in ("services", "deploy") for path in sorted((ROOT / folder).rglob("Dockerfile"))),
]

_IMAGE = re.compile(
    r"(?m)(_IMAGE(?:=|:-)|^FROM |^ *image: |^  redis: )([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?"
)
"""Behind one of four words: an image with its tag, and the digest that it has already."""


def pin(text: str, digest_of: Callable[[str], str]) -> str:
    """`text` with the digest of each image, which `digest_of` knows by name and tag."""
    return _IMAGE.sub(lambda found: f"{found[1]}{found[2]}@{digest_of(found[2])}", text)


def ask_registry(image: str) -> str:
    """The digest that the image's tag stands for now, for all processors."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> int:
    """Pins all images, or none if one is unknown."""
    digest_of = cache(ask_registry)
    pinned = {path: pin(path.read_text(), digest_of) for path in FILES}
    for path, text in pinned.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
