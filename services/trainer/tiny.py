"""Builds rook-tiny's architecture with random weights: the smallest policy that the whole loop can run.

It is a Qwen3-shaped causal LM, so that vLLM can serve LoRA adapters for it. Its tokenizer has one token per
square, piece letter and tag. A million parameters can learn which moves are legal from a board of 64 such
tokens, seen from the side to move.

With `pieces`, a piece on its square is also one token, as the prompt style `mover-twice` writes them. For a
policy that reasons in sentences, `add_words` gives a model the words of a data set. `add_layers` makes a
trained model deeper.
"""

import copy
import json
from collections import Counter
from pathlib import Path
from typing import Any, Self

from pydantic import PositiveInt, model_validator
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from rookery.errors import SetupError
from rookery.remote import FolderPath
from rookery.settings import Settings

SPECIAL = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|unk|>"]
TAGS = ["<think>", "</think>", "\\boxed{", "}", " ", "-", ".", "?"]
PIECES = list("KQRBNPkqrbnp")
SQUARES = [file + rank for rank in "12345678" for file in "abcdefgh"]
PIECES_ON_SQUARES = [piece + square for piece in PIECES for square in SQUARES]

CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

MAX_TOKENS = 384
"""Longest sequence: a prompt of about 70 tokens and a list of 100 legal moves."""

WORD = r" ?(?![KQkq]+ )[A-Za-z]+(?![a-h]?[1-8])|\d+|\.\.\."
"""A word of prose with the space before it, but no castling rights and no part of a move; a number; Black's
three dots."""


class TinySettings(Settings, env_prefix="TINY_"):
    """Write a randomly initialised rook-tiny model of the given shape."""

    out: FolderPath
    """Directory to write."""
    seed: int = 0
    """Seed of the weights."""
    hidden_size: PositiveInt = 128
    """Width of the hidden layers."""
    layers: PositiveInt = 4
    """Number of layers. With --model: how many the deeper model has."""
    intermediate_size: PositiveInt = 384
    """Width of the MLP."""
    heads: PositiveInt = 4
    """Attention heads. There are half as many for keys and values."""
    head_dim: PositiveInt = 32
    """Width of a head."""
    pieces: bool = False
    """Use one token for each piece on each square, for the prompt style mover-twice."""
    model: FolderPath | None = None
    """A model of this kind to which --words or --layers are added: its weights stay."""
    words: Path | None = None
    """JSON lines with `messages`: each word that occurs twice in their answers, or in the alternatives of
    these, becomes a token of --model."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.words and not self.model:
            raise ValueError("--words needs --model")
        if self.model and bool(self.words) == ("layers" in self.model_fields_set):
            raise ValueError("--model needs either --words or --layers")
        return self


def build_tiny(
    out: Path,
    *,
    seed: int = 0,
    hidden_size: int = 128,
    layers: int = 4,
    intermediate_size: int = 384,
    heads: int = 4,
    head_dim: int = 32,
    pieces: bool = False,
) -> Path:
    """Writes a randomly initialised model directory and returns it. The same seed gives the same bytes."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    tokens = SPECIAL + TAGS + PIECES + SQUARES + (PIECES_ON_SQUARES if pieces else [])
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = _build_tokenizer(vocabulary)
    tokenizer.chat_template = CHAT_TEMPLATE
    config = Qwen3Config(
        vocab_size=-(-len(vocabulary) // 32) * 32,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=head_dim,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary["<|end|>"],
        pad_token_id=vocabulary["<|pad|>"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        if pieces:
            _compose_embeddings(model.get_input_embeddings().weight.data, vocabulary)
    model.generation_config = GenerationConfig(
        eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    return _saved(model, tokenizer, out)


def add_words(model_dir: Path, data: Path, out: Path) -> Path:
    """Writes the model to `out` with the words of the answers of `data` as further tokens, and returns `out`.
    The words of soft targets are among them.

    Old tokens keep their numbers and weights. A new one begins with the mean embedding and a little noise.
    """
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir)
    model = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    vocabulary = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]
    split = _splitter(vocabulary, words=True)
    counts = Counter[str]()
    with data.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            answer = row["messages"][-1]["content"]
            others = (text for part in row.get("alternatives") or () for text in part["texts"])
            for text in (answer, *(text for text in others if text not in answer)):
                counts.update(word for word, _ in split.pre_tokenize_str(text))
    old_size = len(vocabulary)
    new_words = sorted(word for word, count in counts.items() if count > 1 and word not in vocabulary)
    vocabulary |= {word: old_size + i for i, word in enumerate(new_words)}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.resize_token_embeddings(-(-len(vocabulary) // 32) * 32, mean_resizing=False)
        weight_VD = model.get_input_embeddings().weight.data
        scale = weight_VD[:old_size].std().item()
        weight_VD[old_size:] = (
            weight_VD[:old_size].mean(0) + torch.randn_like(weight_VD[old_size:]) * scale / 4
        )
    template = tokenizer.chat_template
    tokenizer = _build_tokenizer(vocabulary, words=True)
    tokenizer.chat_template = template
    return _saved(model, tokenizer, out)


def add_layers(model_dir: Path, layers: int, out: Path) -> Path:
    """Writes the model with `layers` layers to `out`, and returns `out`. It answers as before.

    Each added layer is a copy of the one before it whose two output projections are zero: it adds nothing to
    the residual stream until it is trained. The copies are spread evenly, the last one at the end. Raises
    `SetupError` if the model has that many layers or more, or fewer than half of them.
    """
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    old = model.config.num_hidden_layers
    if not old < layers <= 2 * old:
        raise SetupError(f"--layers {layers}: {model_dir} has {old}, so it can get {old + 1} to {2 * old}")
    deeper = torch.nn.ModuleList()
    for index, layer in enumerate(model.model.layers):
        deeper.append(layer)
        if (index + 1) * (layers - old) // old > index * (layers - old) // old:
            added = copy.deepcopy(layer)
            torch.nn.init.zeros_(added.self_attn.o_proj.weight)
            torch.nn.init.zeros_(added.mlp.down_proj.weight)
            deeper.append(added)
    model.model.layers = deeper
    model.config.num_hidden_layers = layers
    model.config.layer_types = ["full_attention"] * layers
    return _saved(model, PreTrainedTokenizerFast.from_pretrained(model_dir), out)


def _saved(model: Any, tokenizer: Any, out: Path) -> Path:
    from services.trainer.versions.files import save_model

    save_model(model, out)
    tokenizer.save_pretrained(out)
    return out


def _compose_embeddings(weight_VD: Any, vocabulary: dict[str, int]) -> None:
    """Initialises a square's embedding with file and rank, and a piece on a square with piece plus square."""
    lines = {line: weight_VD[0].clone().normal_(std=weight_VD.std().item()) for line in "abcdefgh12345678"}
    for square in SQUARES:
        weight_VD[vocabulary[square]] += lines[square[0]] + lines[square[1]]
    for token in PIECES_ON_SQUARES:
        weight_VD[vocabulary[token]] = weight_VD[vocabulary[token[0]]] + weight_VD[vocabulary[token[1:]]]


def _build_tokenizer(vocabulary: dict[str, int], *, words: bool = False) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = _splitter(vocabulary, words=words)
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        unk_token="<|unk|>",
        model_max_length=MAX_TOKENS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _splitter(vocabulary: dict[str, int], *, words: bool = False) -> Any:
    pieces = r"[KQRBNPkqrbnp][a-h][1-8]|" if PIECES_ON_SQUARES[0] in vocabulary else ""
    pattern = Regex(rf"</?think>|\\boxed\{{|{pieces}[a-h][1-8]|{WORD + '|' if words else ''}[\s\S]")
    return pre_tokenizers.Split(pattern, behavior="isolated")


def run(settings: TinySettings) -> None:
    """Writes the model that the settings describe."""
    if settings.model and settings.words:
        add_words(settings.model, settings.words, settings.out)
    elif settings.model:
        add_layers(settings.model, settings.layers, settings.out)
    else:
        build_tiny(**settings.model_dump(exclude={"model", "words"}))
