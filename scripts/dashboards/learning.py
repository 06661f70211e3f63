"""Learning: whether the policy gets better, and whether the step is sound."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import Board, panel, row

J, A = 'job="trainer"', 'job="arena"'


PIECE_DISTANCE = (
    f'sum(abs(avg_over_time(rookery_learning_moves{{{J}, by="policy"}}[10m])'
    f' - ignoring (by) avg_over_time(rookery_learning_moves{{{J}, by="engine"}}[10m]))) / 2'
)
"""Total variation distance of the mean shares of ten minutes, as in the alert PolicyCollapses."""


def _of(*statistics: str) -> tuple[str, str]:
    """Statistics of the last step, by name."""
    return f'rookery_learning{{{J}, statistic=~"{"|".join(statistics)}"}}', "{{statistic}}"


def _evaluated(metrics: str, *, value: str = "mean") -> tuple[str, str]:
    """Figures of the version evaluated last, by name; with the bounds of their intervals for `value` ".*"."""
    return f'rookery_evaluation{{{A}, metric=~"{metrics}", value=~"{value}"}}', "{{metric}} {{value}}"


BOARD = Board(
    "learning",
    "Statistics of the last training step. The full record is metrics.jsonl of the run, and MLflow.",
    [
        row(
            "The policy",
            panel(
                "Reward",
                units.Number,
                "Mean over the batch, and mean deviation within its groups.",
                _of("reward", "reward_std"),
            ),
            panel(
                "Reward by component",
                units.Number,
                "Means. The components of a sum add up to the reward.",
                (f"rookery_learning_reward_component{{{J}}}", "{{component}}"),
            ),
            panel(
                "Legal moves",
                units.PercentUnit,
                "Share of completions with a legal move, and with a readable box. "
                "Of RookWorld's tasks, share of perfect answers.",
                _of("legal_rate", "box_rate", "perfect_p", "perfect_a"),
            ),
            panel(
                "Regret",
                units.Number,
                "Mean win probability that a legal move loses. 0 for the engine's choice.",
                _of("regret"),
            ),
            panel(
                "Length",
                units.Number,
                "Of completions, in tokens.",
                _of("completion_length", "completion_length_p95", "completion_length_max"),
            ),
        ),
        row(
            "Exploration",
            panel(
                "Entropy",
                units.Number,
                "Nats a token. A collapse towards 0 ends exploration.",
                _of("entropy"),
            ),
            panel(
                "Repetition",
                units.PercentUnit,
                "Answers that equal another one of their group. Groups whose rewards are all equal: they "
                "teach nothing. Moves named before the box that are not repetitions: 100% is best.",
                _of("identical_answers", "zero_variance_share", "distinct_candidates"),
            ),
            panel(
                "Steps in collapse",
                units.Number,
                "Consecutive steps in which nearly all groups had equal rewards.",
                _of("collapsed_steps"),
            ),
            panel(
                "Moves by piece",
                units.PercentUnit,
                "Shares of the policy's legal moves.",
                (f'rookery_learning_moves{{{J}, by="policy"}}', "{{piece}}"),
                stacked=True,
            ),
            panel(
                "The engine's moves by piece",
                units.PercentUnit,
                "Shares of the engine's best moves at the same positions.",
                (f'rookery_learning_moves{{{J}, by="engine"}}', "{{piece}}"),
                stacked=True,
            ),
            panel(
                "Distance of the two",
                units.PercentUnit,
                "Total variation. One step is above 0 by chance; the mean of ten minutes is steadier.",
                _of("piece_distance"),
                (PIECE_DISTANCE, "of ten minutes"),
            ),
        ),
        row(
            "Held out, of the version evaluated last",
            panel(
                "Legal moves, held out",
                units.PercentUnit,
                "Share of answers to fixed positions, and of first answers in games, with a 95% interval "
                "of the greedy ones.",
                _evaluated("legal_rate|legal_rate_match"),
                _evaluated("legal_rate_greedy", value=".*"),
            ),
            panel(
                "Regret, held out",
                units.Number,
                "Win probability given away by a legal move, with a 95% interval of the greedy ones, and "
                "by a random legal move.",
                _evaluated("regret_legal|regret_legal_random"),
                _evaluated("regret_legal_greedy", value=".*"),
            ),
            panel(
                "Best moves, held out",
                units.PercentUnit,
                "Share of answers that no other move surpasses.",
                _evaluated("action_accuracy|action_accuracy_greedy|action_accuracy_random"),
            ),
            panel(
                "Exploration, held out",
                units.PercentUnit,
                "Share of the candidates that are no repetition. Total variation distance of the moves "
                "by piece from the engine's best moves, with a 95% interval.",
                _evaluated("distinct_candidates"),
                _evaluated("piece_distance", value=".*"),
            ),
            panel(
                "Elo",
                units.Number,
                "Above the fixed opponent, with a 95% interval. At 0% or 100% there is only a bound.",
                _evaluated("elo", value=".*"),
            ),
            panel(
                "Version evaluated",
                units.Number,
                "The version whose figures these are, and the newest one.",
                (f"rookery_evaluation_version{{{A}}}", "evaluated"),
                (f"rookery_policy_version_trained{{{J}}}", "trained"),
            ),
            panel(
                "Time of an evaluation",
                units.Seconds,
                "Of the version evaluated last.",
                (f"rookery_evaluation_seconds{{{A}}}", "evaluation"),
            ),
        ),
        row(
            "The step",
            panel("Loss", units.Number, "Of the step.", _of("loss")),
            panel("Gradient", units.Number, "Its norm before clipping.", _of("grad_norm")),
            panel("Learning rate", units.Number, "Of the step.", _of("lr")),
            panel(
                "Clip fraction",
                units.PercentUnit,
                "Tokens whose ratio was clipped, below and above.",
                _of("clip_fraction_low", "clip_fraction_high"),
            ),
        ),
        row(
            "Off policy",
            panel(
                "KL",
                units.Number,
                "Nats a token: to the policy that sampled (behaviour), to the base (reference, penalty).",
                _of("kl_behaviour", "kl_reference", "kl_penalty"),
            ),
            panel(
                "KL by age",
                units.Number,
                "To the policy that sampled, by versions the group was behind.",
                (f"rookery_learning_kl_by_age{{{J}}}", "age {{age}}"),
            ),
            panel("Importance ratio", units.Number, "Its maximum over the batch.", _of("ratio_max")),
            panel(
                "Effective sample size",
                units.PercentUnit,
                "Of the batch under its importance weights.",
                _of("ess"),
            ),
            panel(
                "Mismatch",
                units.Number,
                "Difference of log-probabilities on one group of the batch: the server's against the "
                "trainer's under the same version. Precision explains some. A jump: the server does not "
                "serve what it says.",
                _of("mismatch_mean", "mismatch_max"),
            ),
        ),
    ],
)
