"""Streams: what lies in Redis between the services, from `rookery exporter`, and what feeds and drains it."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import WINDOW, Board, panel, rate

E, A, F = 'job="exporter"', 'job="archive"', 'job="feed"'

BOARD = Board(
    "streams",
    "Every stream of the run: how much lies in it, for how long, for whom, and what became of it.",
    (
        (
            "Streams",
            (
                panel(
                    "Length",
                    units.Number,
                    "Entries of each stream, delivered ones included.",
                    (f"rookery_stream_length{{{E}}}", "{{stream}}"),
                ),
                panel(
                    "Oldest entry",
                    units.Seconds,
                    "Its age. It grows without end when a reader has stopped.",
                    (f"rookery_stream_oldest_seconds{{{E}}}", "{{stream}}"),
                ),
                panel(
                    "Lag",
                    units.Number,
                    "Entries that no consumer of the group has been given yet.",
                    (f"rookery_stream_lag{{{E}}}", "{{stream}} for {{group}}"),
                ),
            ),
        ),
        (
            "Consumers",
            (
                panel(
                    "Pending",
                    units.Number,
                    "Entries that each consumer holds and has not acknowledged.",
                    (f"rookery_stream_pending{{{E}}}", "{{group}} / {{consumer}}"),
                ),
                panel(
                    "Silence",
                    units.Seconds,
                    "Since each consumer last asked Redis for anything.",
                    (f"rookery_stream_consumer_idle_seconds{{{E}}}", "{{group}} / {{consumer}}"),
                ),
                panel(
                    "Feed waits",
                    units.PercentUnit,
                    "Share of time that the feed waited for room: near 1 is well.",
                    (f"avg(rate(rookery_feed_wait_seconds_total{{{F}}}[{WINDOW}]))", "waiting"),
                ),
            ),
        ),
        (
            "Flow",
            (
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
                    "Generated, trained and dropped, from the run's own account.",
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
                    "What nobody could handle, since the run began. `XRANGE rookery:RUN:dead` says why.",
                    (f'rookery_stream_length{{{E}, stream="dead"}}', "in the stream"),
                    (f'rookery_run_groups{{{E}, result=~"dead:.*"}}', "{{result}}"),
                ),
            ),
        ),
        (
            "Archive",
            (
                panel(
                    "Waiting and missed",
                    units.Number,
                    "Groups not archived yet, and groups that left unarchived, lost to the archive.",
                    (f"max(rookery_archive_waiting_groups{{{A}}})", "waiting"),
                    (f"max(rookery_archive_missed_groups{{{A}}})", "missed"),
                ),
                panel(
                    "Groups archived",
                    units.CountsPerSecond,
                    "By result; `known` stood in a file already.",
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
                    "Many small ones: raise `file_groups` or `file_age_s`.",
                    (rate("rookery_archive_files_total", A), "files"),
                ),
                panel(
                    "Games skipped",
                    units.Number,
                    "Broken games that data and feed passed over, by reason.",
                    (
                        'sum by (reason) (rookery_games_skipped_total{job=~"data|feed"}) or vector(0)',
                        "{{reason}}",
                    ),
                ),
            ),
        ),
    ),
)
