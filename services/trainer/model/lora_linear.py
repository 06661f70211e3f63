"""A linear layer with a LoRA adapter, without PEFT's passes over outputs.

PEFT computes `base(x) + B(A(x)) * scaling`: one pass for the product, one for the sum, and as many for the
gradients. With a narrow model on a CPU these passes take a fifth of a step. Here the product with B adds to
the base's output at once.
"""

from typing import Any

import torch
from peft.tuners.lora.layer import Linear


class LoraLinear(Linear):  # type: ignore[misc]
    """PEFT's layer for an adapter without dropout. It has the same weights and files.

    Inputs or weights of different types, other adapters than "default", and everything else that PEFT
    supports, are left to PEFT.
    """

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight = self.base_layer.weight
        if (
            self.disable_adapters
            or self.merged
            or self.active_adapters != ["default"]
            or not isinstance(self.lora_dropout["default"], torch.nn.Identity)
            or x.ndim < 2
            or args
            or kwargs
            or not x.dtype == weight.dtype == self.lora_A["default"].weight.dtype
            or torch.is_autocast_enabled(x.device.type)
        ):
            return super().forward(x, *args, **kwargs)
        x_ND = x.flatten(0, -2)
        low_NR = self.lora_A["default"](x_ND)
        outputs_ND = self.base_layer(x_ND)
        # In place, because the gradient of a product does not need the product.
        outputs_ND.addmm_(low_NR, self.lora_B["default"].weight.T, alpha=self.scaling["default"])
        return outputs_ND.view(*x.shape[:-1], outputs_ND.shape[-1])
