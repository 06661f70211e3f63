"""Small random GPT-2s as transformers writes them."""

from pathlib import Path
from typing import Any


def write_gpt2(folder: Path, *, seed: int = 0, std: float = 0.2, **config: Any) -> Path:
    """A model directory. Weights are large enough that no two tokens are nearly as likely."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"vocab_size": 97, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, **config}
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **shape))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "ln_" not in name:
                weight.normal_(std=std)
            elif name.endswith("weight"):
                weight.uniform_(0.5, 1.5)
    model.save_pretrained(folder)
    return folder
