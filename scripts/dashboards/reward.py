"""Reward: how much is judged, how fast, by which replica, and with what luck."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import WINDOW, Board, panel, quantile, rate, row

J = 'job="reward"'

BOARD = Board(
    "reward",
    "The reward service: all replicas together, and each.",
    [
        row(
            "Throughput",
            panel(
                "Verdicts",
                units.CountsPerSecond,
                "By replica. Equal shares mean that the load is balanced.",
                (rate("rookery_reward_outcomes_total", J, by="instance"), "{{instance}}"),
                stacked=True,
            ),
            panel(
                "Outcomes",
                units.CountsPerSecond,
                "Verdicts by outcome.",
                (f"{rate('rookery_reward_outcomes_total', J, by='outcome')} > 0", "{{outcome}}"),
                stacked=True,
            ),
            panel(
                "Requests",
                units.CountsPerSecond,
                "By transport and result: all but `ok` are faults.",
                (
                    rate("rookery_reward_requests_total", J, by="transport, result"),
                    "{{transport}} {{result}}",
                ),
            ),
        ),
        row(
            "Time",
            panel(
                "Request to verdict",
                units.Seconds,
                "Of one item: median and 95th percentile.",
                (quantile(0.5, "rookery_reward_seconds", J), "p50"),
                (quantile(0.95, "rookery_reward_seconds", J), "p95"),
            ),
            panel(
                "Wait for an engine",
                units.Seconds,
                "Of one search. It grows if there are too few engines.",
                (quantile(0.5, "rookery_reward_wait_seconds", J), "p50"),
                (quantile(0.95, "rookery_reward_wait_seconds", J), "p95"),
            ),
            panel(
                "Queue",
                units.Number,
                "Searches that wait for an engine, by replica.",
                (f"rookery_reward_queue_depth{{{J}}}", "{{instance}}"),
            ),
        ),
        row(
            "Engines",
            panel(
                "Utilisation",
                units.PercentUnit,
                "Searching engines as a share of the replica's engines.",
                (f"rookery_reward_engines_busy{{{J}}} / (rookery_reward_engines{{{J}}} > 0)", "{{instance}}"),
            ),
            panel(
                "Nodes",
                units.CountsPerSecond,
                "Nodes searched per second, by replica.",
                (rate("rookery_reward_engine_nodes_total", J, by="instance"), "{{instance}}"),
            ),
            panel(
                "Faults",
                units.Number,
                "Engines restarted, and positions refused because two engines died over them.",
                (f"sum(increase(rookery_reward_engine_restarts_total{{{J}}}[{WINDOW}]))", "restarts"),
                (f"sum(increase(rookery_reward_quarantined_total{{{J}}}[{WINDOW}]))", "quarantined"),
            ),
        ),
        row(
            "Caches",
            panel(
                "Look-ups",
                units.CountsPerSecond,
                "In the replica's own cache (hit, miss) and in the shared one.",
                (rate("rookery_reward_cache_total", J, by="result"), "{{result}}"),
                stacked=True,
            ),
            panel(
                "Shared cache",
                units.CountsPerSecond,
                "Keys looked up in Redis, and keys written to it.",
                (rate("rookery_shared_cache_reads_total", J, by="result"), "read: {{result}}"),
                (rate("rookery_shared_cache_writes_total", J, by="result"), "write: {{result}}"),
            ),
            panel(
                "Shared cache up",
                units.Number,
                "Replicas whose shared cache answers.",
                (f"sum(rookery_shared_cache_up{{{J}}})", "up"),
                (f"count(rookery_shared_cache_up{{{J}}})", "replicas"),
            ),
        ),
        row(
            "Reward model (`rookery serve reward-model`)",
            panel(
                "Answers",
                units.CountsPerSecond,
                "Scored by the reward model, and waiting for it.",
                ("sum(rate(rookery_reward_model_answers_total[$__rate_interval]))", "scored"),
                ("sum(rookery_reward_model_waiting)", "waiting"),
            ),
            panel(
                "Forward passes",
                units.PercentUnit,
                "Of the reward model: share of wall time.",
                ("sum(rate(rookery_reward_model_pass_seconds_sum[$__rate_interval]))", "in passes"),
            ),
        ),
    ],
)
