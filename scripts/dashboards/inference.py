"""Inference: vLLM's own figures, reloads, and the same seen by the rollouts."""

from grafana_foundation_sdk.models import units

from scripts.dashboards.panel import Board, mean, panel, quantile, rate, row

J, R = 'job="inference"', 'job="rollouts"'

BOARD = Board(
    "inference",
    "The inference servers: what they generate, how full they are, and how long a reload takes.",
    [
        row(
            "Tokens",
            panel(
                "Generated",
                units.CountsPerSecond,
                "Tokens by server, and the tokens of finished groups.",
                (rate("vllm:generation_tokens_total", J, by="instance"), "{{instance}}"),
                (rate("rookery_rollout_tokens_total", R), "in groups"),
            ),
            panel(
                "Prompts",
                units.CountsPerSecond,
                "Prompt tokens by server, cached ones included.",
                (rate("vllm:prompt_tokens_total", J, by="instance"), "{{instance}}"),
            ),
            panel(
                "Prefix cache",
                units.PercentUnit,
                "Prompt tokens found in the cache: completions of a group share their prompt.",
                (
                    f"{rate('vllm:prefix_cache_hits_total', J)}"
                    f" / ({rate('vllm:prefix_cache_queries_total', J)} > 0)",
                    "hits",
                ),
            ),
        ),
        row(
            "Load",
            panel(
                "Requests",
                units.Number,
                "Sequences being generated, and sequences that wait for room.",
                (f"sum(vllm:num_requests_running{{{J}}})", "running"),
                (f"sum(vllm:num_requests_waiting{{{J}}})", "waiting"),
            ),
            panel(
                "KV cache",
                units.PercentUnit,
                "Share in use, by server. At 1, sequences are preempted and started again.",
                (f"max by (instance) (vllm:kv_cache_usage_perc{{{J}}})", "{{instance}}"),
            ),
            panel(
                "First token",
                units.Seconds,
                "From request to first token.",
                (quantile(0.5, "vllm:time_to_first_token_seconds", J), "p50"),
                (quantile(0.95, "vllm:time_to_first_token_seconds", J), "p95"),
            ),
            panel(
                "A group",
                units.Seconds,
                "Measured by the rollouts: generation, then scoring.",
                (mean("rookery_rollout_generation_seconds", R), "generation, mean"),
                (quantile(0.95, "rookery_rollout_generation_seconds", R), "generation, p95"),
                (mean("rookery_rollout_reward_seconds", R), "reward, mean"),
                (quantile(0.95, "rookery_rollout_reward_seconds", R), "reward, p95"),
            ),
        ),
        row(
            "New versions",
            panel(
                "Reload by stage",
                units.Seconds,
                "Mean seconds of each stage of a reload.",
                (mean("rookery_reload_seconds", J, by="stage"), "{{stage}}"),
            ),
            panel(
                "Reloads",
                units.CountsPerSecond,
                "By result, as counted by the servers and by the trainer.",
                (rate("rookery_reloads_total", J, by="result"), "server: {{result}}"),
                (rate("rookery_reloads_total", 'job="trainer"', by="result"), "trainer: {{result}}"),
            ),
            panel(
                "Version served",
                units.Number,
                "By each server.",
                (f"rookery_policy_version_served{{{J}}}", "{{instance}}"),
            ),
            panel(
                "Versions behind",
                units.Number,
                "Versions that each server has not loaded yet. Above 1, the server is behind.",
                ('rookery_server_behind_versions{job="trainer"}', "{{server}}"),
            ),
        ),
    ],
)
