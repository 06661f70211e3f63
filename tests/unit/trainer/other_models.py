"""Small random models of kinds that need care, with rook-tiny's tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

SHAPE = {
    "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip


def write_mixture(folder: Path, tiny_model: Path, *, kind: str = "Qwen3Moe", **config: Any) -> Path:
    """A mixture of four experts, two for each token, in bfloat16."""
    import torch
    import transformers

    torch.manual_seed(0)
    experts = {
        "Qwen3Moe": {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2},
        "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    }[kind]
    settings = getattr(transformers, f"{kind}Config")(**SHAPE, **experts, **config)
    model = getattr(transformers, f"{kind}ForCausalLM")(settings)
    return _with_tokenizer(model.to(torch.bfloat16), folder, tiny_model)


def write_reader_of_images(folder: Path, tiny_model: Path) -> Path:
    """A Gemma 3, as from 4B on."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    vision = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=SHAPE, vision_config=vision, mm_tokens_per_image=4)
    return _with_tokenizer(Gemma3ForConditionalGeneration(config), folder, tiny_model)


def write_model_with_code(folder: Path, tiny_model: Path, *, marker: Path) -> Path:
    """A rook-tiny whose classes are its own: importing them writes `marker`."""
    shutil.copytree(tiny_model, folder)
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Own: ...\n")
    for name, classes in {
        "config.json": ("AutoConfig", "AutoModelForCausalLM", "AutoModelForSequenceClassification"),
        "tokenizer_config.json": ("AutoTokenizer",),
    }.items():
        path = folder / name
        changed = json.loads(path.read_text())
        changed |= {"model_type": "own", "architectures": ["Own"], "tokenizer_class": "Own"}
        named = {kind: ["own.Own", None] if kind == "AutoTokenizer" else "own.Own" for kind in classes}
        path.write_text(json.dumps(changed | {"auto_map": named}))
    return folder


def _with_tokenizer(model: Any, folder: Path, tiny_model: Path) -> Path:
    model.save_pretrained(folder)
    for path in (*tiny_model.glob("*token*"), *tiny_model.glob("*.jinja")):
        shutil.copy(path, folder)
    return folder
