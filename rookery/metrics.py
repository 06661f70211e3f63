"""All Prometheus metrics of Rookery.

Names carry the unit. Labels take a few values only: never a step number, a FEN or an adapter name.
"""

from prometheus_client import Counter, Gauge, Histogram

_FAST_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SLOW_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# data
POSITIONS_SAMPLED = Counter("rookery_positions_sampled_total", "Positions drawn from games", ["phase"])
GAMES_SKIPPED = Counter("rookery_games_skipped_total", "Games skipped", ["reason"])
FEED_WAIT_S = Counter("rookery_feed_wait_seconds_total", "Time the feed waited for room in its stream")
ARCHIVE_GROUPS = Counter("rookery_archive_groups_total", "Groups processed by the archiver", ["result"])
ARCHIVE_FILES = Counter("rookery_archive_files_total", "Files written by the archiver")
ARCHIVE_BYTES = Counter("rookery_archive_bytes_total", "Bytes written by the archiver")
ARCHIVE_WAITING = Gauge("rookery_archive_waiting_groups", "Groups in the stream that are not archived yet")
ARCHIVE_WRITABLE = Gauge(
    "rookery_archive_writable", "1 if the last attempt to write a file succeeded, else 0"
)
ARCHIVE_MISSED = Gauge(
    "rookery_archive_missed_groups", "Groups removed from the stream before the archiver read them"
)

# reward
REWARD_REQUESTS = Counter("rookery_reward_requests_total", "Scoring requests", ["transport", "result"])
REWARD_OUTCOMES = Counter("rookery_reward_outcomes_total", "Verdicts by outcome", ["outcome"])
REWARD_SECONDS = Histogram("rookery_reward_seconds", "From request to verdict of one item", buckets=_FAST_S)
REWARD_QUEUE = Gauge("rookery_reward_queue_depth", "Searches waiting for an engine")
ENGINES_BUSY = Gauge("rookery_reward_engines_busy", "Engines that are searching")
ENGINES_TOTAL = Gauge("rookery_reward_engines", "Engines of this replica")
REWARD_WAIT = Histogram(
    "rookery_reward_wait_seconds", "From request to engine of one search", buckets=_FAST_S
)
ENGINE_RESTARTS = Counter("rookery_reward_engine_restarts_total", "Engines restarted")
POSITIONS_QUARANTINED = Counter(
    "rookery_reward_quarantined_total", "Positions refused because two engines died over them"
)
ENGINE_NODES = Counter("rookery_reward_engine_nodes_total", "Nodes searched")
REWARD_CACHE = Counter("rookery_reward_cache_total", "Cache look-ups", ["result"])
SHARED_CACHE_READS = Counter(
    "rookery_shared_cache_reads_total", "Keys looked up in the shared cache", ["result"]
)
SHARED_CACHE_WRITES = Counter(
    "rookery_shared_cache_writes_total", "Keys written to the shared cache", ["result"]
)
SHARED_CACHE_UP = Gauge(
    "rookery_shared_cache_up", "1 if the shared cache answers, 0 if not or if none is set"
)

# reward model
REWARD_MODEL_ANSWERS = Counter("rookery_reward_model_answers_total", "Answers scored by the reward model")
REWARD_MODEL_PASS_S = Histogram(
    "rookery_reward_model_pass_seconds", "One forward pass of the reward model", buckets=_FAST_S
)
REWARD_MODEL_WAITING = Gauge("rookery_reward_model_waiting", "Answers waiting for the reward model")

# inference
RELOADS = Counter("rookery_reloads_total", "Adapter reloads", ["result"])
RELOAD_SECONDS = Histogram("rookery_reload_seconds", "Adapter reload by stage", ["stage"], buckets=_SLOW_S)
SERVED_VERSION = Gauge("rookery_policy_version_served", "Version that the alias `policy` names")

# rollouts
ROLLOUT_INFLIGHT = Gauge("rookery_rollout_inflight_groups", "Groups being generated or scored")
ROLLOUT_LEAD = Gauge(
    "rookery_rollout_lead_groups", "Groups that may be made beyond those of the batch in training"
)
ROLLOUT_GROUPS = Counter("rookery_rollout_groups_total", "Groups by result", ["result"])
ROLLOUT_TOKENS = Counter("rookery_rollout_tokens_total", "Completion tokens generated")
ROLLOUT_TURNS = Counter(
    "rookery_rollout_turns_total",
    "Turns after the first, by the row that they are in",
    ["row"],
)
ROLLOUT_EPISODES = Counter(
    "rookery_rollout_episodes_total",
    "Games and dialogues that ended, by why: finished, or the next prompt exceeds the model's context",
    ["end"],
)
ROLLOUT_GENERATION_S = Histogram(
    "rookery_rollout_generation_seconds", "One group of completions", buckets=_SLOW_S
)
ROLLOUT_REWARD_S = Histogram("rookery_rollout_reward_seconds", "One group of verdicts", buckets=_SLOW_S)
BACKPRESSURE_S = Counter(
    "rookery_backpressure_seconds_total", "Time rollouts were idle because the trainer was behind"
)
POSITIONS_WAIT_S = Counter(
    "rookery_positions_wait_seconds_total", "Time rollouts were idle because there were no positions"
)
PEERS_WAIT_S = Counter(
    "rookery_peers_wait_seconds_total", "Time rollouts were idle because inference or reward was down"
)

# trainer
ROLLOUT_WAIT_S = Counter(
    "rookery_rollout_wait_seconds_total", "Time the trainer was idle because there were no groups"
)
TRAINER_VERSION = Gauge("rookery_policy_version_trained", "Version last committed")
SERVER_BEHIND = Gauge(
    "rookery_server_behind_versions",
    "Versions since the last one that an inference server accepted",
    ["server"],
)
TRAINER_STEP_S = Histogram(
    "rookery_trainer_step_seconds", "Training step by phase", ["phase"], buckets=_SLOW_S
)
TRAINER_STALE_TURNS = Counter(
    "rookery_trainer_stale_turns_total", "Turns without loss because they are too old"
)
TRAINER_GROUPS = Counter("rookery_trainer_groups_total", "Groups settled", ["result"])
TRAINER_TOKENS = Counter("rookery_trainer_tokens_total", "Completion tokens trained on")
TRAINER_LAST_STEP = Gauge("rookery_trainer_last_step_timestamp_seconds", "When the last step ended")
GROUP_AGE = Histogram(
    "rookery_group_age_versions", "Versions a group is behind when trained", buckets=(0, 1, 2, 3, 4, 8)
)
LEARNING = Gauge("rookery_learning", "Mean of a learning statistic over the last step", ["statistic"])
REWARD_COMPONENT = Gauge(
    "rookery_learning_reward_component", "Mean of a component of the reward over the last step", ["component"]
)
MOVES_BY_PIECE = Gauge(
    "rookery_learning_moves",
    "Share of a piece among the legal moves of the last step, and among the engine's best moves",
    ["by", "piece"],
)
KL_BY_AGE = Gauge(
    "rookery_learning_kl_by_age", "KL to the policy that sampled, by versions the group was behind", ["age"]
)
TRAINER_TOKENS_PER_S = Gauge(
    "rookery_trainer_tokens_per_second", "Completion tokens of the last step by its seconds", ["kind"]
)
TRAINER_MFU = Gauge("rookery_trainer_mfu", "Useful operations of the last step as a share of the peak")
TRAINER_MEMORY = Gauge("rookery_trainer_memory_bytes", "Memory of the trainer at the last step", ["kind"])

# the arena, while a run trains
EVALUATED_VERSION = Gauge("rookery_evaluation_version", "Version evaluated last")
EVALUATION = Gauge(
    "rookery_evaluation", "Figures of the version evaluated last, with 95% intervals", ["metric", "value"]
)
EVALUATION_S = Gauge("rookery_evaluation_seconds", "Duration of the last evaluation")

# streams
REDIS_RETRIES = Counter("rookery_redis_retries_total", "Calls repeated because Redis was unavailable")

# waits
WAITING_S = Gauge(
    "rookery_waiting_seconds",
    "How long a process has waited for something, if longer than expected",
    ["what", "peer"],
)

# `rookery exporter`
STREAM_LENGTH = Gauge("rookery_stream_length", "Entries in a stream", ["stream"])
STREAM_OLDEST_S = Gauge("rookery_stream_oldest_seconds", "Age of the oldest entry of a stream", ["stream"])
STREAM_LAG = Gauge(
    "rookery_stream_lag",
    "Entries of a stream that were not delivered to any consumer of the group",
    ["stream", "group"],
)
STREAM_PENDING = Gauge(
    "rookery_stream_pending", "Entries delivered, not acknowledged", ["stream", "group", "consumer"]
)
CONSUMER_IDLE_S = Gauge(
    "rookery_stream_consumer_idle_seconds",
    "Time since the last call of a consumer",
    ["stream", "group", "consumer"],
)
RUN_GROUPS = Gauge("rookery_run_groups", "Groups since the start of the run, by result", ["result"])
RUN_ENDED = Gauge("rookery_run_ended", "1 if the trainer has done all its steps")
RUN_ASTRAY = Gauge(
    "rookery_run_astray_groups", "Groups missing from the run's counts; 0 unless groups were lost"
)
