#!/usr/bin/env bash
# The road of pipelines/pychess.toml, or of another pipeline file: games, SFT, pairs, reward model, PPO, evaluation.
#   ./run_pipeline.sh                                          on GPUs, at full size
#   ./run_pipeline.sh pipelines/pychess.toml --set rl-steps=50 with another setting
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec .venv/bin/rookery pipeline run "${1:-pipelines/pychess.toml}" "${@:2}"
