#!/usr/bin/env bash
# Builds the image of a pipeline's jobs and pushes it to ECR: push_image.sh REGION ACCOUNT [cpu|gpu]
set -euo pipefail
region=${1:?usage: push_image.sh REGION ACCOUNT [cpu|gpu]} account=${2:?usage: push_image.sh REGION ACCOUNT [cpu|gpu]}
registry=$account.dkr.ecr.$region.amazonaws.com
image=$registry/rookery-pipeline:latest
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
aws ecr describe-repositories --region "$region" --repository-names rookery-pipeline >/dev/null 2>&1 \
  || aws ecr create-repository --region "$region" --repository-name rookery-pipeline >/dev/null
aws ecr get-login-password --region "$region" | docker login --username AWS --password-stdin "$registry"
docker build --file deploy/pipeline/Dockerfile --build-arg "ROOKERY_PROFILE=${3:-gpu}" --tag "$image" .
docker push "$image"
