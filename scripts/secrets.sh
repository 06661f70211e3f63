#!/usr/bin/env bash
# Writes what is missing of docker compose's secrets, each random, into the folder secrets/: token.env, and redis/NAME.env
# with the password of each of Redis's users (deploy/users.acl), which only the service of that name reads.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 077
folder=${SECRETS:-secrets}
mkdir -p "$folder/redis"

random() { od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'; }

# Usage: keep FILE LINE...: writes the lines, unless the file exists. Whole or not at all.
keep() {
  local file=$folder/$1
  shift
  if [ ! -s "$file" ]; then printf '%s\n' "$@" >"$file.new" && mv "$file.new" "$file"; fi
}

token=$(random)
keep token.env "ROOKERY_TOKEN=$token"
while read -r _ user _; do
  password=$(random)
  url=redis://$user:$password@redis:6379
  case $user in
    default) keep "redis/$user.env" "REDISCLI_AUTH=$password" ;;
    reward) keep "redis/$user.env" "REWARD_REDIS_URL=$url/1" ;;
    exporter) keep "redis/$user.env" "ROOKERY_REDIS_URL=$url/0" "STATUS_REDIS_URL=$url/0" ;;
    viewer) keep "redis/$user.env" "VIEWER_REDIS_URL=$url/0" "STATUS_REDIS_URL=$url/0" ;;
    *) keep "redis/$user.env" "ROOKERY_REDIS_URL=$url/0" ;;
  esac
done <deploy/users.acl
