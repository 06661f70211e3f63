import json
from pathlib import Path

import pytest

MODEL = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """What adapters need to know of a base model."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder
