"""Builds rook-tiny's architecture with random weights: the smallest policy that the whole loop can run.

It is a Qwen3-shaped causal LM, so that vLLM can serve LoRA adapters for it. Its tokenizer has one token per
square, piece letter and tag. A million parameters can learn which moves are legal from a board of 64 such
tokens, seen from the side to move.

With `pieces`, a piece on its square is also one token, as the prompt style `mover-twice` writes them.
"""

from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from pydantic_settings import SettingsConfigDict
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

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


class TinySettings(Settings):
    """Write a randomly initialised rook-tiny model of the given shape."""

    model_config = SettingsConfigDict(env_prefix="TINY_")

    out: Path
    """Directory to write."""
    seed: int = 0
    """Seed of the weights."""
    hidden_size: PositiveInt = 128
    """Width of the hidden layers."""
    layers: PositiveInt = 4
    """Number of layers."""
    intermediate_size: PositiveInt = 384
    """Width of the MLP."""
    heads: PositiveInt = 4
    """Attention heads. There are half as many for keys and values."""
    head_dim: PositiveInt = 32
    """Width of a head."""
    pieces: bool = False
    """Use one token for each piece on each square, for the prompt style mover-twice."""


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
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokens = SPECIAL + TAGS + PIECES + SQUARES + (PIECES_ON_SQUARES if pieces else [])
    vocabulary = {token: i for i, token in enumerate(tokens)}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(vocabulary),
        pad_token="<|pad|>",
        eos_token="<|end|>",
        unk_token="<|unk|>",
        model_max_length=MAX_TOKENS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
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
            _compose(model.get_input_embeddings().weight.data, vocabulary)
    model.generation_config = GenerationConfig(
        eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    fast.save_pretrained(out)
    return out


def _compose(weight_VD: Any, vocabulary: dict[str, int]) -> None:
    """Initialises a square's embedding with file and rank, and a piece on a square with piece plus square."""
    lines = {line: weight_VD[0].clone().normal_(std=weight_VD.std().item()) for line in "abcdefgh12345678"}
    for square in SQUARES:
        weight_VD[vocabulary[square]] += lines[square[0]] + lines[square[1]]
    for token in PIECES_ON_SQUARES:
        weight_VD[vocabulary[token]] = weight_VD[vocabulary[token[0]]] + weight_VD[vocabulary[token[1:]]]


def _tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    pieces = r"[KQRBNPkqrbnp][a-h][1-8]|" if PIECES_ON_SQUARES[0] in vocabulary else ""
    pattern = Regex(rf"</?think>|\\boxed\{{|{pieces}[a-h][1-8]|[\s\S]")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def run(settings: TinySettings) -> None:
    """Writes the model that the settings describe."""
    build_tiny(**settings.model_dump())
