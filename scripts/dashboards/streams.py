"""Streams: what lies in Redis between the services, from `rookery exporter`, and what feeds and drains it."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import WINDOW, Board, panel, rate, row

E, A, F = 'job="exporter"', 'job="archive"', 'job="feed"'

BOARD = Board(
    "streams",
    "The run's streams: their length and age, their consumers, and groups by result.",
    [
        row(
            "Streams",
            panel(
                "Length",
                units.Number,
                "Entries of each stream, delivered ones included.",
                (f"rookery_stream_length{{{E}}}", "{{stream}}"),
            ),
            panel(
                "Oldest entry",
                units.Seconds,
                "Age of the oldest entry. It keeps growing if a reader has stopped.",
                (f"rookery_stream_oldest_seconds{{{E}}}", "{{stream}}"),
            ),
            panel(
                "Lag",
                units.Number,
                "Entries that were not delivered to any consumer of the group.",
                (f"rookery_stream_lag{{{E}}}", "{{stream}} for {{group}}"),
            ),
        ),
        row(
            "Consumers",
            panel(
                "Pending",
                units.Number,
                "Entries that each consumer holds and has not acknowledged.",
                (f"rookery_stream_pending{{{E}}}", "{{group}} / {{consumer}}"),
            ),
            panel(
                "Silence",
                units.Seconds,
                "Time since the last call of each consumer.",
                (f"rookery_stream_consumer_idle_seconds{{{E}}}", "{{group}} / {{consumer}}"),
            ),
            panel(
                "Feed waits",
                units.PercentUnit,
                "Share of time that the feed waited for room. Near 1 is good.",
                (f"avg(rate(rookery_feed_wait_seconds_total{{{F}}}[{WINDOW}]))", "waiting"),
            ),
            panel(
                "Run ended",
                units.Number,
                "1 if the trainer has done all its steps: then nothing more is awaited.",
                (f"max(rookery_run_ended{{{E}}})", "ended"),
            ),
        ),
        row(
            "Flow",
            panel(
                "Positions drawn",
                units.CountsPerSecond,
                "By the feed, by phase of the game.",
                (rate("rookery_positions_sampled_total", F, by="phase"), "{{phase}}"),
                stacked=True,
            ),
            panel(
                "Groups",
                units.CountsPerSecond,
                "Generated, trained and dropped, from the run's counts.",
                (
                    "sum by (result) (rate("
                    f'rookery_run_groups{{{E}, result=~"generated|trained|dropped:.*"}}'
                    f"[{WINDOW}]))",
                    "{{result}}",
                ),
            ),
            panel(
                "Dead letters",
                units.Number,
                "Dead letters since the start of the run. `XRANGE rookery:RUN:dead` has the reasons.",
                (f'rookery_stream_length{{{E}, stream="dead"}}', "in the stream"),
                (f'rookery_run_groups{{{E}, result=~"dead:.*"}}', "{{result}}"),
            ),
        ),
        row(
            "Archive",
            panel(
                "Waiting and missed",
                units.Number,
                "Groups not archived yet, and groups that left the stream without being archived.",
                (f"max(rookery_archive_waiting_groups{{{A}}})", "waiting"),
                (f"max(rookery_archive_missed_groups{{{A}}})", "missed"),
            ),
            panel(
                "Groups archived",
                units.CountsPerSecond,
                "By result. `known`: was in a file already.",
                (rate("rookery_archive_groups_total", A, by="result") + " or vector(0)", "{{result}}"),
            ),
            panel(
                "Archive takes files",
                units.Number,
                "1, or 0 since a write failed: the disk is full or read-only, or the bucket is away.",
                (f"min(rookery_archive_writable{{{A}}})", "takes files"),
            ),
            panel(
                "Bytes written",
                units.BytesPerSecondIEC,
                "Parquet, on disk or in the bucket.",
                (rate("rookery_archive_bytes_total", A), "bytes"),
            ),
            panel(
                "Files written",
                units.CountsPerSecond,
                "If there are many small files, raise `file_groups` or `file_age_s`.",
                (rate("rookery_archive_files_total", A), "files"),
            ),
            panel(
                "Games skipped",
                units.Number,
                "Broken games that data and feed skipped, by reason.",
                (
                    'sum by (reason) (rookery_games_skipped_total{job=~"data|feed"}) or vector(0)',
                    "{{reason}}",
                ),
            ),
        ),
    ],
)
