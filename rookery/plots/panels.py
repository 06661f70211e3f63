"""Defines which statistics are drawn in the same panel, and in which unit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rookery.errors import InvalidInput
from rookery.plots.steps import matching


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: the statistics drawn in it, which have the same unit, and the limits of the y axis.

    A key may be a pattern, for example `component_*` for all components of the reward. With one run, the
    `references` are drawn as dotted lines, each in the colour of the statistic at its place.
    """

    title: str
    keys: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    references: tuple[str, ...] = ()


REWARD = Panel("Reward", ("reward",))
TASKS = (
    Panel("Reward of RookWorld's tasks", ("reward_p", "reward_a")),
    Panel("Perfect answers, share", ("perfect_p", "perfect_a"), low=0.0, high=1.03),
    Panel("P: lines, accuracy of the fields", ("component_p_*",), low=0.0, high=1.03),
    Panel("A: lines, accuracy of the fields", ("component_a_*",), low=0.0, high=1.03),
)
"""The panels of RookWorld's tasks."""

SHARES = Panel("Share of answers", ("legal_rate", "box_rate"), low=0.0, high=1.03)
REGRET = Panel("Regret of legal moves", ("regret",), low=0.0, references=("regret_random",))
ENTROPY = Panel("Entropy, nats per token", ("entropy",), low=0.0)
EXPLORATION = Panel(
    "Exploration, shares",
    ("identical_answers", "distinct_candidates", "zero_variance_share"),
    low=0.0,
    high=1.03,
)
PIECES = Panel("Moves by piece (dotted: engine)", ("moves_*",), low=0.0, references=("best_moves_*",))
KL = Panel("KL, nats per token", ("kl_reference", "kl_behaviour"))
NORM = Panel("Gradient norm", ("grad_norm",), low=0.0)
SECONDS = Panel("Seconds per step", ("step_s", "rollout_wait_s", "train_s", "commit_s"), low=0.0)
AGE = Panel("Age of groups, versions", ("age_mean", "age_max"), low=0.0)

OVERVIEW = (REWARD, *TASKS, SHARES, REGRET, ENTROPY, EXPLORATION, PIECES, KL, NORM, SECONDS, AGE)
"""The panels of a report."""

PANELS = (
    REWARD,
    Panel("Reward by component", ("component_[!pa]*", "component_[pa][!_]*")),
    *TASKS,
    SHARES,
    REGRET,
    Panel("Loss per token", ("loss", "value_loss")),
    Panel("Accuracy, share of pairs", ("accuracy",), low=0.0, high=1.03),
    KL,
    Panel("KL by age, nats per token", ("kl_behaviour_age*",)),
    Panel("KL coefficient", ("kl_coefficient",), low=0.0),
    ENTROPY,
    Panel("Entropy coefficient", ("entropy_coefficient",), low=0.0),
    EXPLORATION,
    PIECES,
    Panel("Moves by piece, distance to engine", ("piece_distance",), low=0.0),
    Panel("Clipped tokens, share", ("clip_fraction_low", "clip_fraction_high"), low=0.0),
    Panel("Largest importance ratio", ("ratio_max",), low=0.0),
    Panel("Effective sample size, share", ("ess",), low=0.0, high=1.03),
    NORM,
    Panel("Learning rate", ("lr",), low=0.0),
    Panel(
        "Completion length, tokens",
        ("completion_length", "completion_length_p95", "completion_length_max"),
        low=0.0,
    ),
    AGE,
    SECONDS,
    Panel("Tokens per second", ("tokens_per_s", "generated_tokens_per_s"), low=0.0),
    Panel("Model flops utilisation, share", ("mfu",), low=0.0),
    Panel("Memory, MiB", ("resident_mib", "resident_peak_mib", "cuda_peak_mib"), low=0.0),
)

STRENGTH = (
    Panel(
        "Legal moves, held out",
        ("evaluation_legal_rate_greedy", "evaluation_legal_rate", "evaluation_legal_rate_match"),
        low=0.0,
        high=1.03,
    ),
    Panel(
        "Regret, held out",
        ("evaluation_regret_legal_greedy", "evaluation_regret_legal", "evaluation_regret_legal_random"),
        low=0.0,
    ),
    Panel(
        "Best move, held out",
        (
            "evaluation_action_accuracy_greedy",
            "evaluation_action_accuracy",
            "evaluation_action_accuracy_random",
        ),
        low=0.0,
    ),
    Panel(
        "Exploration, held out",
        ("evaluation_distinct_candidates", "evaluation_piece_distance"),
        low=0.0,
        high=1.03,
    ),
    Panel("Elo above the opponent", ("evaluation_elo",)),
)
"""The panels of a run whose versions were evaluated while it trained. They have intervals."""

LABELS = {
    "evaluation_legal_rate_greedy": "greedy",
    "evaluation_legal_rate": "sampled",
    "evaluation_legal_rate_match": "in games",
    "evaluation_regret_legal_greedy": "greedy",
    "evaluation_regret_legal": "sampled",
    "evaluation_action_accuracy_greedy": "greedy",
    "evaluation_action_accuracy": "sampled",
    "evaluation_regret_legal_random": "random legal move",
    "evaluation_action_accuracy_random": "random legal move",
    "evaluation_distinct_candidates": "distinct candidates",
    "evaluation_piece_distance": "pieces: distance from engine",
    "reward_p": "P: lines",
    "reward_a": "A: lines",
    "perfect_p": "P: lines",
    "perfect_a": "A: lines",
    "regret": "policy",
    "regret_random": "random legal move, held out",
    "legal_rate": "legal move",
    "box_rate": "readable box",
    "identical_answers": "identical answers in a group",
    "distinct_candidates": "distinct candidates",
    "zero_variance_share": "groups of equal rewards",
    "kl_reference": "to the base",
    "kl_behaviour": "to the sampling policy",
    "step_s": "whole step",
    "rollout_wait_s": "waiting for rollouts",
    "train_s": "training",
    "commit_s": "committing",
    "age_mean": "mean",
    "age_max": "oldest",
    "loss": "policy",
    "value_loss": "value",
    "clip_fraction_low": "below",
    "clip_fraction_high": "above",
    "completion_length": "mean",
    "completion_length_p95": "95th percentile",
    "completion_length_max": "longest",
    "tokens_per_s": "trained, while training",
    "generated_tokens_per_s": "generated, whole step",
    "resident_mib": "resident",
    "resident_peak_mib": "resident, peak",
    "cuda_peak_mib": "GPU, peak",
}


def label_of(key: str) -> str:
    """The label of a key in the legend.

    >>> label_of("kl_behaviour_age2"), label_of("component_delta"), label_of("moves_rook")
    ('age 2', 'delta', 'rook')
    """
    return LABELS.get(key) or re.sub("^(component(_[pa])?|best_moves|moves)_", "", key).replace(
        "kl_behaviour_age", "age "
    )


def choose(
    keys: Sequence[str], *, asked: Sequence[str] = (), panels: Sequence[Panel] = PANELS
) -> list[Panel]:
    """The panels that have any of `keys`, with their patterns resolved.

    With `asked`, which may contain patterns, there is one panel for each matching key instead. Raises
    `InvalidInput` if there is no such panel; the message lists the keys.
    """
    if asked:
        panels = [Panel(key, (key,)) for key in matching(keys, asked)]
    present = [
        replace(panel, keys=tuple(matches), references=tuple(matching(keys, panel.references)))
        for panel in panels
        if (matches := matching(keys, panel.keys))
    ]
    if not present:
        patterns = ", ".join(asked or [key for panel in panels for key in panel.keys])
        available = ", ".join(keys) or "none"
        raise InvalidInput(f"nothing to draw: no step has any of {patterns}; the steps have {available}")
    return present
