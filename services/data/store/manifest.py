"""`manifest.json` of a data set: its sources, settings and versions, and the SHA-256 of its files."""

import json
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import chess

import rookery
from services.data.store.storage import Folder, Written

MANIFEST = "manifest.json"


def write_manifest(
    folder: Folder,
    kind: str,
    written: Iterable[Written],
    *,
    terms: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Writes and returns the manifest. `terms` determine the data set; `facts` are its statistics."""
    manifest = {
        "kind": kind,
        "outputs": [{"path": file.name, "size": file.size, "sha256": file.sha256} for file in written],
        "terms": dict(terms),
        **facts,
        "versions": {
            "rookery": rookery.__version__,
            "python": platform.python_version(),
            "chess": chess.__version__,
            "pyarrow": version("pyarrow"),
        },
    }
    folder.write_bytes(MANIFEST, json.dumps(manifest, indent=2).encode() + b"\n")
    return manifest
