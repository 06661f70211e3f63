"""The value head's loss. N is the number of completion tokens."""

import torch


def value_losses(
    values_N: torch.Tensor, old_N: torch.Tensor, returns_N: torch.Tensor, *, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns half the squared error of each value, [N], and where the clip applies, [N] of bool.

    The loss is the larger of the errors of the value and of the value clipped to [old - clip, old + clip],
    so a value gains nothing by leaving that range towards its return. OpenAI's PPO; Engstrom et al. 2020
    (arXiv 2005.12729), section 3, item 1. A `clip` of 0 does not clip. Only `values_N` carries a gradient.
    """
    errors_N = (values_N - returns_N).square()
    if clip == 0.0:
        return 0.5 * errors_N, torch.zeros_like(errors_N, dtype=torch.bool)
    kept_N = old_N + (values_N - old_N).clamp(-clip, clip)
    kept_errors_N = (kept_N - returns_N).square()
    return 0.5 * torch.maximum(errors_N, kept_errors_N), (kept_errors_N > errors_N).detach()
