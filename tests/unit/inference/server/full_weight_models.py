"""Whole models of a few numbers, written by hand."""

import hashlib
import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path

from rookery.trace import Adapter, PolicyVersion

CONFIG = {"model_type": "gpt2", "n_head": 2, "dtype": "float32"}
SHAPES = {"transformer.wte.weight": (6, 4), "transformer.h.0.mlp.c_fc.weight": (4, 8)}


def write_model(
    folder: Path,
    *,
    version: int = 0,
    shapes: Mapping[str, tuple[int, ...]] = SHAPES,
    config: Mapping[str, object] = CONFIG,
    name: str = "model.safetensors",
    dtypes: Mapping[str, str] = {},
) -> Adapter:
    """A model directory whose numbers are all `version`: floats, or the bytes that `dtypes` names."""
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {}, b""
    for tensor, shape in shapes.items():
        dtype, count = dtypes.get(tensor, "F32"), prod(shape)
        numbers = bytes([version]) * count if tensor in dtypes else struct.pack("<f", version) * count
        offsets = [len(data), len(data) + len(numbers)]
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += numbers
    text = json.dumps(header).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    (folder / name).write_bytes(whole)
    (folder / "config.json").write_text(json.dumps(config))
    return Adapter(PolicyVersion(version, hashlib.sha256(whole).hexdigest()), str(folder), "tiny")
