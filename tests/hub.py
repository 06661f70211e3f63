"""A cache of the Hugging Face Hub as huggingface_hub lays it out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REVISION = "607a30d783dfa663caf39e06633721c8d4cfcd7e"


def write_snapshot(cache: Path, model: str, config: Mapping[str, Any] | None = None) -> Path:
    """The folder of an id's snapshot in `cache`; with a `config`, that and an empty file of weights."""
    repository = cache / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    if config is not None:
        (snapshot / "config.json").write_text(json.dumps(config))
        (snapshot / "model.safetensors").touch()
    return snapshot
