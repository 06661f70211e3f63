"""Reward: how much is judged, how fast, by which replica, and with what luck."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import WINDOW, Board, panel, quantile, rate

J = 'job="reward"'

BOARD = Board(
    "reward",
    "The reward service, all replicas together and each alone.",
    (
        (
            "Throughput",
            (
                panel(
                    "Verdicts",
                    units.CountsPerSecond,
                    "By replica: even shares mean that the load is spread.",
                    (rate("rookery_reward_outcomes_total", J, by="instance"), "{{instance}}"),
                    stacked=True,
                ),
                panel(
                    "Outcomes",
                    units.CountsPerSecond,
                    "Verdicts by what the answer was.",
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
        ),
        (
            "Time",
            (
                panel(
                    "Request to verdict",
                    units.Seconds,
                    "Of one item: median, and the slowest of twenty.",
                    (quantile(0.5, "rookery_reward_seconds", J), "p50"),
                    (quantile(0.95, "rookery_reward_seconds", J), "p95"),
                ),
                panel(
                    "Wait for an engine",
                    units.Seconds,
                    "Of one search. It grows when engines are too few.",
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
        ),
        (
            "Engines",
            (
                panel(
                    "Utilisation",
                    units.PercentUnit,
                    "Engines that search, of all engines of the replica.",
                    (
                        f"rookery_reward_engines_busy{{{J}}} / (rookery_reward_engines{{{J}}} > 0)",
                        "{{instance}}",
                    ),
                ),
                panel(
                    "Nodes",
                    units.CountsPerSecond,
                    "Searched a second, by replica.",
                    (rate("rookery_reward_engine_nodes_total", J, by="instance"), "{{instance}}"),
                ),
                panel(
                    "Faults",
                    units.Number,
                    "Engines started again, and positions given up because they killed two.",
                    (f"sum(increase(rookery_reward_engine_restarts_total{{{J}}}[{WINDOW}]))", "restarts"),
                    (f"sum(increase(rookery_reward_quarantined_total{{{J}}}[{WINDOW}]))", "quarantined"),
                ),
            ),
        ),
        (
            "Caches",
            (
                panel(
                    "Look-ups",
                    units.CountsPerSecond,
                    "In the replica's own cache: hit, miss, or shared with a search that runs.",
                    (rate("rookery_reward_cache_total", J, by="result"), "{{result}}"),
                    stacked=True,
                ),
                panel(
                    "Shared cache",
                    units.CountsPerSecond,
                    "Keys asked of Redis, and keys given to it.",
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
                panel(
                    "Streams",
                    units.Number,
                    "Open ScoreStream calls, and their items not yet answered.",
                    (f"sum(rookery_reward_streams{{{J}}})", "streams"),
                    (f"sum(rookery_reward_stream_items{{{J}}})", "items"),
                ),
            ),
        ),
        (
            "Reward model (`rookery serve reward-model`)",
            (
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
        ),
    ),
)
