#!/usr/bin/env bash
# Usage: scripts/backup.sh save|restore FOLDER
# `save` writes to FOLDER what a run under docker compose needs to go on, also on another machine: the volumes redis, runs,
# archive and mlflow, .env with the variables of this shell, run.toml and the secrets. Services stop meanwhile. An earlier
# backup in FOLDER is replaced when the new one is whole.
# `restore` puts all that into this repository, in place of its .env, run.toml and secrets, and into new volumes.
set -euo pipefail
[[ $# = 2 && $1 =~ ^(save|restore)$ ]] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
folder=$(realpath -m -- "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 077

# Usage: setting NAME FILE DEFAULT: a variable of the shell, or of a file like .env.
setting() {
  local value
  value=$(sed -En "/^$1=/{s///; s/^(['\"])(.*)\1.*/\2/; t quoted; s/\s+#.*//; :quoted; p}" "$2" | tail -n 1)
  value=${!1:-$value}
  echo "${value:-$3}"
}

# Usage: in_volumes COMMAND...: runs it in a container with the volumes.
in_volumes() { docker compose run --rm --no-deps -T backup "$@"; }

# The lines of .env, with the variables of this shell.
settings() {
  local line name value
  while IFS= read -r line || [ "$line" ]; do
    name=$(sed -En 's/^(# )?([A-Z0-9_]+)=.*/\2/p' <<<"$line")
    if [ "$name" ] && [ "${!name+set}" ]; then
      value=${!name}
      # compose reads $, # and white space in quotes as they are.
      if [[ $value =~ [^A-Za-z0-9_./:,@%+=-] && $value != *"'"* ]]; then value="'$value'"; fi
      line=$name=$value
    fi
    printf '%s\n' "$line"
  done <.env
}

# Starts what was stopped, and leaves no half of a backup.
end() {
  rm -rf "$draft"
  # shellcheck disable=SC2086 # each name is a word
  if [ "$running" ]; then docker compose start $running; fi
}

save() {
  if [ -e "$folder" ] && [ ! -e "$folder/volumes.tar.gz" ] && [ "$(ls "$folder")" ]; then
    echo "$folder is neither empty nor a backup: name another folder" >&2
    exit 1
  fi
  mkdir -p "$folder"
  running='' draft=$(mktemp -d "$folder/.draft.XXXXXX")
  trap end EXIT
  settings >"$draft/env"
  cp "$(setting ROOKERY_TOML .env ./deploy/run.toml)" "$draft/run.toml"
  cp -rL "$(setting SECRETS .env ./secrets)" "$draft/secrets"
  if [ -f docker-compose.override.yml ]; then cp docker-compose.override.yml "$draft"; fi
  running=$(docker compose ps --services --status running --status restarting)
  # shellcheck disable=SC2086 # each name is a word; without names, services of other profiles would go on
  if [ "$running" ]; then docker compose stop $running; fi
  in_volumes tar -C /volumes -cz . >"$draft/volumes.tar.gz"
  rm -rf "$folder"/{env,run.toml,secrets,docker-compose.override.yml,volumes.tar.gz}
  mv "$draft"/* "$folder"
}

restore() {
  local project volumes toml secrets
  for name in env run.toml secrets volumes.tar.gz; do
    [ -e "$folder/$name" ] || { echo "$folder has no $name: it is no whole backup" >&2; exit 1; }
  done
  project=$(setting COMPOSE_PROJECT_NAME "$folder/env" "$(basename "$PWD")")
  volumes=$(docker volume ls --quiet --filter "label=com.docker.compose.project=$project")
  if [ "$volumes" ]; then
    echo "project $project has volumes here: \`docker compose down --volumes\` deletes them and what is in them" >&2
    exit 1
  fi
  cp "$folder/env" .env
  toml=$(setting ROOKERY_TOML .env ./deploy/run.toml) secrets=$(setting SECRETS .env ./secrets)
  mkdir -p "$(dirname "$toml")" "$secrets"
  install -m 644 "$folder/run.toml" "$toml"    # services read it, which are other users
  cp -r "$folder/secrets/." "$secrets"
  if [ -f "$folder/docker-compose.override.yml" ]; then cp "$folder/docker-compose.override.yml" .; fi
  in_volumes tar -C /volumes -xz <"$folder/volumes.tar.gz"
}

"$1"
