"""Named sampling defaults, for requests that set no sampling parameters.

Rollouts do not use them: they always send their temperature (1 by default), top_p 1 and no top_k, because
importance ratios need a distribution that is not truncated.
"""

from typing import Literal

SamplingName = Literal["qwen3-thinking", "qwen3-non-thinking", "neutral"]

# The "Best Practices" of https://huggingface.co/Qwen/Qwen3-4B#best-practices.
DEFAULTS: dict[SamplingName, dict[str, float]] = {
    "qwen3-thinking": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
    "qwen3-non-thinking": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0},
    "neutral": {},
}
"""The fields are those of `generation_config.json`."""
