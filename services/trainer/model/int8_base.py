"""Loads a frozen base with its linear layers in 8 bits (LLM.int8(), arXiv 2208.07339).

Each row of a weight becomes integers with one scale. Head, embeddings, norms and the adapter do not change.
bitsandbytes does the computing: on a GPU it multiplies integers, with inputs beyond 6 separately in 16 bits;
on a CPU it scales the weights back before the product.
"""

import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch

from rookery.errors import SetupError
from services.trainer.fitting.backbone import load_causal_lm


def load(path: Path, *, dtype: torch.dtype, device: torch.device) -> Any:
    """Loads the language model of a directory onto `device`. Weights that are not quantised have `dtype`.

    Raises:
        SetupError: bitsandbytes is not installed, or there is no model.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError("--int8-base needs bitsandbytes: pip install 'rookery[bits8]'")
    from transformers import BitsAndBytesConfig

    # It would warn at every product that it casts the inputs to 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    model = load_causal_lm(
        path,
        dtype=dtype,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        device_map={"": str(device) if device.index is not None or device.type == "cpu" else 0},
    )
    if device.type == "cpu":
        # The other weights point into the memory-mapped file; copying them lets all of it be freed.
        for weight in model.parameters():
            if weight.dtype != torch.int8:
                weight.data = weight.data.clone()
    return model
