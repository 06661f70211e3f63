"""Computes logits from hidden states as the model does: output embedding, then scale, then cap.

    z = cap * tanh(scale * W h / cap), or scale * W h without a cap

Granite divides by `logits_scaling`, Cohere multiplies by `logit_scale`, Falcon-H1 by `lm_head_multiplier`,
Gemma caps with `final_logit_softcapping`. A model that does anything else is rejected when it is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rookery.errors import SetupError

_TOLERANCE = 1e-5
"""Allowed difference relative to the largest logit, unless two units of the model's precision are more."""


@dataclass(frozen=True, slots=True)
class Head:
    """`linear` maps hidden states [n, D] to products [n, V]. A `cap` of 0 means no cap."""

    linear: Callable[[torch.Tensor], torch.Tensor]
    scale: float = 1.0
    cap: float = 0.0

    @classmethod
    def of(cls, model: Any) -> "Head":
        """Returns the head of a Hugging Face causal LM, with or without an adapter."""
        config = model.config.get_text_config()

        def setting(name: str, default: float) -> float:
            value = getattr(config, name, None)
            return float(default if value is None else value)

        scale = setting("logit_scale", 1.0) * setting("lm_head_multiplier", 1.0)
        cap = setting("final_logit_softcapping", 0.0) or setting("logits_soft_cap", 0.0)
        return cls(model.get_output_embeddings(), scale / setting("logits_scaling", 1.0), cap)

    def __call__(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Returns logits, [N, V], in float32, or in float64 if the products are."""
        products_NV = self.linear(hidden_ND)
        return self.shaped(products_NV.to(torch.promote_types(products_NV.dtype, torch.float32)))

    def shaped(self, products_NV: torch.Tensor) -> torch.Tensor:
        """Returns the products, scaled and capped. It is the same tensor if the model does neither."""
        logits_NV = products_NV if self.scale == 1.0 else products_NV * self.scale
        return self.cap * torch.tanh(logits_NV / self.cap) if self.cap else logits_NV

    def slope(self, logits_NV: torch.Tensor) -> torch.Tensor | float:
        """Returns the derivative of `shaped` from its result z: scale * (1 - (z / cap)^2)."""
        return self.scale * (1.0 - (logits_NV / self.cap).square()) if self.cap else self.scale


def check(model: Any) -> None:
    """Compares the logits of `Head` with the model's own on a few tokens.

    Raises:
        SetupError: they differ.
    """
    weight = model.get_output_embeddings().weight
    ids_1T = torch.arange(1, 5, device=weight.device)[None] % len(weight)
    with torch.no_grad():
        theirs_1TV = model(input_ids=ids_1T, use_cache=False).logits.float()
        ours_1TV = Head.of(model)(model.base_model(input_ids=ids_1T, use_cache=False).last_hidden_state)
    largest = theirs_1TV.abs().max().item()
    difference = (ours_1TV - theirs_1TV).abs().max().item()
    allowed = max(_TOLERANCE, 2 * torch.finfo(weight.dtype).eps) * max(1.0, largest)
    if not difference <= allowed:  # NaN compares false
        raise SetupError(
            f"model type {model.config.model_type!r}: its logits differ by up to {difference:.4g} "
            f"from those computed here, of at most {largest:.4g}, so it cannot be trained"
        )
