"""A LoRA adapter on any causal LM, and its files as PEFT writes them and vLLM reads them."""

import json
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save


def with_adapter(
    model: Any, *, rank: int, alpha: int, targets: str, trained_whole: tuple[str, ...] = ()
) -> Any:
    """`model` frozen, with a fresh adapter in float32; modules of `trained_whole` learn beside it.

    `targets` are module names with commas, or `all-linear`: every linear layer but the head.
    """
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=targets if targets == "all-linear" else targets.split(","),
        modules_to_save=list(trained_whole) or None,
        lora_dropout=0.0,
        bias="none",
        task_type="SEQ_CLS" if trained_whole else "CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fan_in_fan_out")  # GPT-2's Conv1D: PEFT sets it right by itself
        return get_peft_model(model, config)


def adapter_files(model: Any, *, base_model: str) -> Mapping[str, bytes]:
    """By file name; the same weights give the same bytes."""
    weights = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in get_peft_model_state_dict(model).items()
    }
    config = model.peft_config["default"].to_dict()
    config["base_model_name_or_path"] = base_model
    config["inference_mode"] = True
    config["target_modules"] = sorted(config["target_modules"])
    text = json.dumps(config, indent=2, sort_keys=True, default=str)
    return {"adapter_model.safetensors": save(weights), "adapter_config.json": text.encode()}
