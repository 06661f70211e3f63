"""A frozen base whose linear layers lie in memory in 8 bits (LLM.int8(), arXiv 2208.07339).

Each row of a weight becomes integers with one scale. Head, embeddings, norms and the adapter stay as they
were. bitsandbytes computes: on a GPU products of integers, inputs beyond 6 apart in 16 bits; on a CPU
products with the weights scaled back.
"""

import importlib.util
import logging
from collections.abc import Mapping
from typing import Any

import torch

from rookery.errors import SetupError


def loading(device: torch.device) -> Mapping[str, Any]:
    """What `from_pretrained` is told, so that the layers are turned to integers on `device` as they are read.

    Raises:
        SetupError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise SetupError("--int8-base needs bitsandbytes: pip install 'rookery[bits8]'")
    from transformers import BitsAndBytesConfig

    # It says at every product that inputs go through 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    place = str(device) if device.index is not None or device.type == "cpu" else 0
    return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": {"": place}}
