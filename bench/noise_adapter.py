"""LoRA adapters of random weights, written without torch: for benches and tests, never for a policy."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from rookery.trace import Adapter, PolicyVersion

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_adapter(
    folder: Path,
    model: Path,
    *,
    version: int,
    rank: int = 8,
    scale: float = 0.02,
    config: Mapping[str, Any] | None = None,
) -> Adapter:
    """An adapter for the Llama- or Qwen-shaped model in `model`, different for each version.

    `scale` is the standard deviation of B's entries: 0 gives the base model's answers. `config` adds
    to adapter_config.json.
    """
    folder.mkdir(parents=True)
    tensors = _tensors(
        json.loads((model / "config.json").read_text()), rank, scale, np.random.default_rng(version)
    )
    weights = save(tensors)
    (folder / "adapter_model.safetensors").write_bytes(weights)
    lora = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank}
    lora |= {"target_modules": list(MODULES), "bias": "none", "base_model_name_or_path": model.name}
    (folder / "adapter_config.json").write_text(json.dumps({**lora, **(config or {})}))
    sha256 = hashlib.sha256(weights).hexdigest()
    return Adapter(PolicyVersion(version, sha256), str(folder.resolve()), model.name)


def _tensors(config: Mapping[str, Any], rank: int, scale: float, rng: np.random.Generator) -> dict[str, Any]:
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, (inputs, outputs) in _shapes(config).items():
            block = "mlp" if module in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            name = f"base_model.model.model.layers.{layer}.{block}.{module}"
            for kind, shape, deviation in (
                ("lora_A", (rank, inputs), inputs**-0.5),
                ("lora_B", (outputs, rank), scale),
            ):
                values = rng.standard_normal(shape, dtype=np.float32)
                tensors[f"{name}.{kind}.weight"] = deviation * values
    return tensors


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    queries, keys = heads * head, (config.get("num_key_value_heads") or heads) * head
    outputs = (queries, keys, keys, hidden, inner, inner, hidden)
    inputs = (hidden, hidden, hidden, queries, hidden, hidden, inner)
    return dict(zip(MODULES, zip(inputs, outputs, strict=True), strict=True))
