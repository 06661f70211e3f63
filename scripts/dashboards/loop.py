"""Loop: who waits for whom, and how far apart generation and training are."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import Board, mean, panel, rate, row

T, R, I = 'job="trainer"', 'job="rollouts"', 'job="inference"'  # noqa: E741

BOARD = Board(
    "loop",
    "Start here: the waits show which side is the bottleneck, the counts show whether groups were lost.",
    [
        row(
            "Now",
            panel(
                "Version trained",
                units.Number,
                "The version last committed by the trainer.",
                (f"max(rookery_policy_version_trained{{{T}}})", "trained"),
                number=True,
            ),
            panel(
                "Version served",
                units.Number,
                "The version behind `policy`, of the server that is furthest behind.",
                (f"min(rookery_policy_version_served{{{I}}})", "served"),
                number=True,
            ),
            panel(
                "Since the last step",
                units.Seconds,
                "Time since the trainer finished a step.",
                (f"time() - max(rookery_trainer_last_step_timestamp_seconds{{{T}}} > 0)", "ago"),
                number=True,
            ),
            panel(
                "Groups trained",
                units.Number,
                "Groups trained on since the start of the run.",
                ('max(rookery_run_groups{result="trained"})', "trained"),
                number=True,
            ),
            panel(
                "Groups astray",
                units.Number,
                "Groups missing from the run's counts. If it is not 0, groups were lost.",
                ('max(rookery_run_astray_groups{job="exporter"})', "astray"),
                number=True,
            ),
            panel(
                "Processes up",
                units.Number,
                "Targets that Prometheus can reach.",
                ("sum(up)", "up"),
                number=True,
            ),
        ),
        row(
            "Who waits",
            panel(
                "The waits",
                units.PercentUnit,
                "Share of time idle. If the trainer waits for groups, add inference or reward. "
                "If rollouts wait for the trainer, make it faster or allow more staleness.",
                (rate("rookery_rollout_wait_seconds_total", T), "trainer, for groups"),
                (
                    f"avg(rate(rookery_backpressure_seconds_total{{{R}}}[$__rate_interval]))",
                    "rollouts, for the trainer",
                ),
                (
                    f"avg(rate(rookery_positions_wait_seconds_total{{{R}}}[$__rate_interval]))",
                    "rollouts, for positions",
                ),
                (
                    f"avg(rate(rookery_peers_wait_seconds_total{{{R}}}[$__rate_interval]))",
                    "rollouts, for inference or reward",
                ),
            ),
            panel(
                "Phases of a step",
                units.PercentUnit,
                "Where the trainer's time goes: share of wall time by phase.",
                (rate("rookery_trainer_step_seconds_sum", T, by="phase"), "{{phase}}"),
                stacked=True,
            ),
            panel(
                "Seconds of a step",
                units.Seconds,
                "Mean of each phase of a training step.",
                (mean("rookery_trainer_step_seconds", T, by="phase"), "{{phase}}"),
            ),
        ),
        row(
            "Versions",
            panel(
                "Versions",
                units.Number,
                "Trained, and served by each server. They differ if reloads fail.",
                (f"max(rookery_policy_version_trained{{{T}}})", "trained"),
                (f"rookery_policy_version_served{{{I}}}", "served by {{instance}}"),
            ),
            panel(
                "Age of groups",
                units.Number,
                "Versions between generation and training: the mean, and each age's share.",
                (mean("rookery_group_age_versions", T), "mean"),
                (
                    f"{rate('rookery_group_age_versions_bucket', T, by='le')}"
                    " / ignoring (le) group_left () "
                    f"({rate('rookery_group_age_versions_count', T)} > 0)",
                    "share up to {{le}}",
                ),
            ),
            panel(
                "Lead",
                units.Number,
                "Groups that may be made beyond those of the batch in training: as few as suffice for "
                "the trainer not to wait.",
                (f"max(rookery_rollout_lead_groups{{{R}}})", "groups"),
            ),
            panel(
                "Groups settled",
                units.CountsPerSecond,
                "By the trainer, by result.",
                (rate("rookery_trainer_groups_total", T, by="result"), "{{result}}"),
                stacked=True,
            ),
        ),
        row(
            "Work",
            panel(
                "Groups generated",
                units.CountsPerSecond,
                "By result. `superseded`: another process was faster; `dead`: moved to `dead`.",
                (rate("rookery_rollout_groups_total", R, by="result"), "{{result}}"),
                stacked=True,
            ),
            panel(
                "Groups in flight",
                units.Number,
                "Being generated or scored, by process.",
                (f"rookery_rollout_inflight_groups{{{R}}}", "{{instance}}"),
            ),
            panel(
                "Trainer speed",
                units.CountsPerSecond,
                "Tokens per second of the last step, and the mean over wall time.",
                (f"rookery_trainer_tokens_per_second{{{T}}}", "last step, {{kind}}"),
                (rate("rookery_trainer_tokens_total", T), "over wall time"),
            ),
            panel(
                "Trainer MFU",
                units.PercentUnit,
                "Useful operations of the last step as a share of the device's peak.",
                (f"rookery_trainer_mfu{{{T}}}", "MFU"),
            ),
            panel(
                "Trainer memory",
                units.BytesIEC,
                "At the last step.",
                (f"rookery_trainer_memory_bytes{{{T}}}", "{{kind}}"),
            ),
            panel(
                "Waits longer than expected",
                units.Seconds,
                "Who waits for what, on which peer. Empty in a healthy run.",
                ("rookery_waiting_seconds or vector(0)", "{{job}}: {{what}} from {{peer}}"),
            ),
            panel(
                "Redis retries",
                units.CountsPerSecond,
                "Calls repeated because Redis was unavailable, by service. 0 except in an outage.",
                ("sum by (job) (rate(rookery_redis_retries_total[$__rate_interval]))", "{{job}}"),
            ),
        ),
    ],
)
