"""Losses on pairs of a chosen and a rejected answer. E is the number of pairs."""

import torch
import torch.nn.functional as F


def bradley_terry(chosen_E: torch.Tensor, rejected_E: torch.Tensor, margin_E: torch.Tensor) -> torch.Tensor:
    """-log sigmoid(r_chosen - r_rejected - margin), [E]: how surprising the preference is, in nats.

    Bradley and Terry (Biometrika 39, 1952) as the loss of a reward model: Ouyang et al. 2022
    (arXiv 2203.02155), eq. 1. The margin grows with how much better the chosen answer is: Llama 2
    (arXiv 2307.09288), eq. 2. If the margin is 0, the sigmoid of the difference is the probability of the
    preference.
    """
    return -F.logsigmoid(chosen_E - rejected_E - margin_E)


def dpo(
    chosen_E: torch.Tensor,
    rejected_E: torch.Tensor,
    reference_chosen_E: torch.Tensor,
    reference_rejected_E: torch.Tensor,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Direct preference optimisation, [E]: Rafailov et al. 2023 (arXiv 2305.18290), eq. 7.

    The four tensors are log-probabilities of whole answers, summed over their tokens. `label_smoothing` is
    the share of pairs assumed to be mislabelled (Mitchell, "A note on DPO with noisy preferences", 2023,
    eq. 3).
    """
    margin_E = dpo_margin(chosen_E, rejected_E, reference_chosen_E, reference_rejected_E, beta=beta)
    return -(1 - label_smoothing) * F.logsigmoid(margin_E) - label_smoothing * F.logsigmoid(-margin_E)


def dpo_margin(
    chosen_E: torch.Tensor,
    rejected_E: torch.Tensor,
    reference_chosen_E: torch.Tensor,
    reference_rejected_E: torch.Tensor,
    *,
    beta: float,
) -> torch.Tensor:
    """Implicit reward of chosen minus that of rejected, [E]: beta times the difference of the log-ratios."""
    return beta * ((chosen_E - reference_chosen_E) - (rejected_E - reference_rejected_E))
