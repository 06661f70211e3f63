"""Named sampling defaults, for people who send a request without any.

Rollouts never rely on them: they send temperature 1, top_p 1 and no top_k explicitly, because a
truncated distribution has no importance ratio.
"""

from typing import Literal

SamplingName = Literal["qwen3-thinking", "qwen3-non-thinking", "neutral"]

# The "Best Practices" of https://huggingface.co/Qwen/Qwen3-4B#best-practices.
DEFAULTS: dict[SamplingName, dict[str, float]] = {
    "qwen3-thinking": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
    "qwen3-non-thinking": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0},
    "neutral": {},
}
"""Fields as in `generation_config.json`."""
