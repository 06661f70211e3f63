"""How many positions a model has. After the last, GPT-2 has no embedding and other models are untrained."""

from typing import Any

from rookery.errors import SetupError
from rookery.trace import TraceGroup

_STRETCHED = ("linear", "dynamic", "yarn")
"""Rotary scalings whose factor extends the model beyond the limit in its config."""


def limit(config: Any) -> int | None:
    """Returns the number of positions of the model with this config; None if it names no limit."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    most = getattr(config, "max_position_embeddings", None)  # GPT-2's `n_positions`, too
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if most and rope.get("rope_type", rope.get("type")) in _STRETCHED:
        most = max(most, int(rope.get("factor", 1) * rope.get("original_max_position_embeddings", most)))
    return most


def check(model: Any, tokens: int, *, said: str) -> None:
    """Rejects sequences that are too long: of `tokens` tokens. `said` names them in the message.

    Raises:
        SetupError: the model has fewer positions.
    """
    most = limit(model.config)
    if most is not None and tokens > most:
        raise SetupError(f"{said}: {tokens:,} tokens, but the model has {most:,} positions")


def check_group(model: Any, group: TraceGroup) -> None:
    """Rejects a group with a sequence that is too long.

    Raises:
        SetupError: the prompt with the longest completion has more tokens than the model has positions.
    """
    prompt = len(group.prompt_token_ids)
    longest = max(len(trace.completion.token_ids) for trace in group.traces)
    said = f"group {group.id}, a prompt of {prompt:,} and a completion of {longest:,} tokens"
    check(model, prompt + longest, said=said)
