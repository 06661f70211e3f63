"""Reads and writes a GPT-2's directory: config.json, weights as safetensors, and reads its tokenizer.

Weights have Hugging Face's names. It stores the four linear layers of a block as `Conv1D`, input by output,
the transpose of `nn.Linear`. Names may have the prefix `transformer.` (GPT2LMHeadModel) or not (GPT2Model).
There may be several files, with an index. A tied head is not stored; masks in old files are ignored.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer

from rookery.errors import InvalidInput
from rookery.hub import CONFIG_FILE, WEIGHTS_FILE, weight_files
from rookery.rookworld import END_OF_TEXT
from services.trainer.distributed.placement import shard_like
from services.trainer.gpt2.model import Gpt2, Gpt2Config
from services.trainer.versions.files import Content, StoredTensor, TensorFile

MODEL_TYPE = "gpt2"

_ALLOWED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
}
"""The supported values of settings that change the results of Hugging Face's GPT-2."""

PREFIX = "transformer."
HEAD = "lm_head.weight"

_TRANSPOSED = re.compile(r"h\.\d+\.(attn|mlp)\.(c_attn|c_proj|c_fc)\.weight")
_MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")

_SHOWN = 5


def load(folder: Path) -> Gpt2:
    """Loads the model of a directory in float32. Raises `InvalidInput` if it has no GPT-2, or tensors are
    missing, unknown or of another shape, which it names."""
    with torch.device("meta"):  # random weights would be computed and thrown away
        model = Gpt2(read_config(folder))
    model.to_empty(device="cpu")
    if model.config.tie_word_embeddings:
        model.lm_head.weight = model.wte.weight
    load_weights(model, folder)
    return model


def read_config(folder: Path) -> Gpt2Config:
    """Reads the shape of a GPT-2 from the `config.json` of a Hugging Face model directory. Raises
    `InvalidInput` if it is not a GPT-2, or its config has a value that is not supported here."""
    path = folder / CONFIG_FILE
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        if values.get("model_type") != MODEL_TYPE:
            raise InvalidInput(f"model_type {values.get('model_type')!r} is not {MODEL_TYPE!r}")
        for name, allowed in _ALLOWED.items():
            if values.get(name, allowed[0]) not in allowed:
                raise InvalidInput(f"{name} {values[name]!r}: only {allowed[0]!r} is supported")
        return Gpt2Config(
            vocab_size=values["vocab_size"],
            max_position_embeddings=values["n_positions"],
            hidden_size=values["n_embd"],
            num_hidden_layers=values["n_layer"],
            num_attention_heads=values["n_head"],
            intermediate_size=values.get("n_inner") or 4 * values["n_embd"],
            layer_norm_epsilon=values.get("layer_norm_epsilon", 1e-5),
            tie_word_embeddings=values.get("tie_word_embeddings", True),
        )
    except KeyError as error:
        raise InvalidInput(f"{path} lacks {error}") from error
    except (OSError, ValueError, InvalidInput) as error:
        raise InvalidInput(f"{path}: {error}") from error


def load_weights(model: Gpt2, folder: Path) -> None:
    """Overwrites all weights of a model in place. After an error, some are overwritten and some are not.
    Raises `InvalidInput` if tensors are missing, unknown or of another shape; the message names them."""
    parameters = dict(model.named_parameters())
    missing = set(parameters)
    unknown: list[str] = []
    wrong: list[str] = []
    for name, tensor in _tensors(folder, tied=model.config.tie_word_embeddings):
        if name not in parameters:
            unknown.append(name)
            continue
        missing.discard(name)
        if _TRANSPOSED.fullmatch(name):
            tensor = tensor.T
        if tensor.shape != parameters[name].shape:
            order = -1 if _TRANSPOSED.fullmatch(name) else 1
            shape, expected = list(tensor.shape)[::order], list(parameters[name].shape)[::order]
            wrong.append(f"{name} has {shape}, wanted {expected}")
            continue
        with torch.no_grad():
            parameters[name].copy_(shard_like(parameters[name], tensor))
    problems = [
        *([f"missing {_first_names(sorted(missing))}"] if missing else []),
        *([f"unknown {_first_names(sorted(unknown))}"] if unknown else []),
        *([f"misshapen {_first_names(wrong)}"] if wrong else []),
    ]
    if problems:
        raise InvalidInput(f"weights of {folder}: {'; '.join(problems)}")


def files(model: Gpt2, *, config: Mapping[str, Any]) -> dict[str, Content]:
    """The contents of a directory that transformers and vLLM load, by file name. The same weights give the
    same bytes. `config` is the content of `config.json`."""
    weights = {
        PREFIX + name if name != HEAD else name: StoredTensor.of(
            parameter, dtype=torch.float32, transposed=bool(_TRANSPOSED.fullmatch(name))
        )
        for name, parameter in model.named_parameters()
    }
    text = json.dumps(config, indent=2, sort_keys=True)
    return {WEIGHTS_FILE: TensorFile(weights, {"format": "pt"}), CONFIG_FILE: text.encode()}


def _tensors(folder: Path, *, tied: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every weight with its name without the prefix, one at a time, so that memory holds one copy."""
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for stored in file.keys():  # noqa: SIM118 - no mapping
                    name = stored.removeprefix(PREFIX)
                    if not _MASK.fullmatch(name) and not (tied and name == HEAD):
                        yield name, file.get_tensor(stored)
        except (OSError, SafetensorError) as error:
            raise InvalidInput(f"{path}: {error}") from error


def _first_names(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def load_tokenizer(folder: Path) -> Tokenizer:
    """Loads GPT-2's tokenizer without transformers. It is in `tokenizer.json`, or in the older `vocab.json`
    and `merges.txt`. Raises `InvalidInput` if the directory has neither."""
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if whole.is_file():
        return Tokenizer.from_file(str(whole))
    if vocabulary.is_file() and merges.is_file():
        older: Tokenizer = ByteLevelBPETokenizer(str(vocabulary), str(merges))
        older.add_special_tokens([END_OF_TEXT])
        return older
    raise InvalidInput(f"{folder} has neither {whole.name} nor {vocabulary.name} and {merges.name}")
