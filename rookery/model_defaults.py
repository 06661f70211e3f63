"""The settings that a run takes from its model, unless the user sets them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rookery.errors import SetupError
from rookery.files import read_object
from rookery.hub import CONFIG_FILE, chat_template, read_manifest, text_folder
from rookery.prompt import LINES, STYLES

CHAT_STYLE = "fen-legal-san"
"""For a model with a chat template: instructions, the position and its legal moves, from which a model that
knows little chess can choose."""

TERSE_TOKENS, ROOKWORLD_TOKENS = 32, 144
"""For models of this project that answer with candidates and a move; for RookWorld's five evaluated moves."""
CHAT_TOKENS, SMALL_TOKENS, THINKING_TOKENS = 512, 256, 1024
"""For models with a chat template: in general, those with fewer than half a billion weights, whose answers
get no better with length, and those that think first."""

_TOY, _SMALL, _BILLION = 20e6, 0.5e9, 1e9


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """Settings for a model, each with the reason."""

    style: str | None
    """The prompt style; None if nothing tells it."""
    max_tokens: int
    """The longest answer, in tokens."""
    lr: float | None
    """The learning rate of a LoRA adapter in RL; None for the small models of this project, whose own the
    trainer's default is."""
    whole_lr: float | None
    """The learning rate if all weights are trained."""
    reasons: Mapping[str, str]
    """The reason for each, by its name."""


def model_defaults(model: str, *, style: str | None = None, download: bool = False) -> ModelDefaults:
    """The settings for a model folder, an id of the Hugging Face Hub, or the URL of a folder.

    `style` is the one that the user gave. With `download`, the configuration, the tokenizer and the template
    of an id that is not here are downloaded. Raises `SetupError` if there is no such model, or one of its
    files is damaged.
    """
    folder = text_folder(model, download=download)
    config = read_object(folder / CONFIG_FILE)
    manifest, template = read_manifest(folder), chat_template(folder)
    weights = parameter_count(config)
    size = f"{weights / 1e6:,.0f} million weights" if weights else "weights of unknown number"
    reasons = {}
    if written := manifest.get("style"):
        style, reasons["style"] = written, "the model's manifest"
        if written not in STYLES:
            raise SetupError(f"{folder}: its manifest names the prompt style {written[:40]!r}, which is none")
    elif template:
        style, reasons["style"] = style or CHAT_STYLE, "the model has a chat template"
    tokens, reasons["max_tokens"] = _answer_tokens(manifest, template, style, weights=weights, size=size)
    limit = config.get("max_position_embeddings", config.get("n_positions"))
    if isinstance(limit, int) and tokens > limit // 2:
        tokens, reasons["max_tokens"] = limit // 2, f"half of the model's {limit} positions"
    lr = whole_lr = None
    if template and (weights or _BILLION) > _TOY:
        small = weights and weights < _BILLION
        lr, whole_lr = (2e-4, 1e-5) if small else (1e-4, 1e-6)
        reasons["lr"] = size
    return ModelDefaults(style, tokens, lr, whole_lr, reasons)


def _answer_tokens(
    manifest: Mapping[str, Any], template: str, style: str | None, *, weights: int | None, size: str
) -> tuple[int, str]:
    """The longest answer, and why."""
    if isinstance(written := manifest.get("answer_tokens"), int) and written > 0:
        return written, "the model's manifest"
    if style and style.startswith("rookworld"):
        return ROOKWORLD_TOKENS, "RookWorld's lines have up to that many"
    if style and (style in LINES or style.startswith("mover-")):
        return TERSE_TOKENS, f"answers to {style} are short"
    if "enable_thinking" in template or "<think>" in template:
        return THINKING_TOKENS, "the model's template lets it think"
    if weights and weights < _SMALL:
        return SMALL_TOKENS, size
    return CHAT_TOKENS, "the model has a chat template" if template else size


def parameter_count(config: Mapping[str, Any]) -> int | None:
    """How many weights a transformer of this `config.json` has, biases and norms apart; None if unknown.

    Llama's family (with grouped queries, three matrices in the MLP, several experts) and GPT-2.

    >>> parameter_count({"n_embd": 768, "n_layer": 12, "vocab_size": 50257, "n_positions": 1024})
    124318464
    """
    config = config.get("text_config") or config
    try:
        if "n_embd" in config:
            width, layers = config["n_embd"], config["n_layer"]
            return int(layers * 12 * width**2 + (config["vocab_size"] + config["n_positions"]) * width)
        width, heads = config["hidden_size"], config["num_attention_heads"]
        head = config.get("head_dim") or width // heads
        keys = config.get("num_key_value_heads") or heads
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        experts = config.get("num_experts") or config.get("num_local_experts") or 1
        layer = 2 * width * head * (heads + keys) + 3 * width * inner * experts
        heads_of_words = 1 if config.get("tie_word_embeddings", True) else 2
        return int(config["num_hidden_layers"] * layer + heads_of_words * config["vocab_size"] * width)
    except (KeyError, TypeError, ZeroDivisionError):
        return None
