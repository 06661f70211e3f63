"""A frozen base whose linear layers lie in memory in 8 bits (LLM.int8(), arXiv 2208.07339).

Each row of a weight becomes integers with one scale. Head, embeddings, norms and the adapter stay as they
were. bitsandbytes computes: on a GPU products of integers, inputs beyond 6 apart in 16 bits; on a CPU
products with the weights scaled back.
"""

import importlib.util
import logging
from pathlib import Path
from typing import Any

import torch

from rookery.errors import SetupError
from services.trainer.fitting.backbone import load_causal_lm


def load(path: Path, *, dtype: torch.dtype, device: torch.device) -> Any:
    """The language model of a directory, on `device`; what does not become integers is of `dtype`.

    Raises:
        SetupError: bitsandbytes is not installed, or there is no model.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError("--int8-base needs bitsandbytes: pip install 'rookery[bits8]'")
    from transformers import BitsAndBytesConfig

    # It says at every product that inputs go through 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    model = load_causal_lm(
        path,
        dtype=dtype,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        device_map={"": str(device) if device.index is not None or device.type == "cpu" else 0},
    )
    if device.type == "cpu":
        # What stays as it was lies in the mapped file, all of which would stay in memory with it.
        for weight in model.parameters():
            if weight.dtype != torch.int8:
                weight.data = weight.data.clone()
    return model
