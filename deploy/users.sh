#!/bin/bash
# Usage: users.sh RULES FOLDER OUT COMMAND...
# Writes Redis's users to OUT: RULES, with the password in FOLDER/NAME.env in the place of each @NAME@. Then runs COMMAND.
set -eu
rules=$(<"$1")
for file in "$2"/*.env; do
    # REDISCLI_AUTH=PASSWORD, or VARIABLE=redis://NAME:PASSWORD@redis:6379/0
    password=$(sed -En '1s/^[A-Z_]+=(.*:)?([A-Za-z0-9]+)(@.*)?$/\2/p' "$file") name=$(basename "$file" .env)
    [ "$password" ] || { echo "$file: its password is not of letters and digits alone" >&2; exit 1; }
    rules=${rules//@$name@/$password}
done
if [[ $rules =~ @([a-z]+)@ ]]; then
    echo "$2/${BASH_REMATCH[1]}.env is missing: type \`make secrets\`" >&2
    exit 1
fi
echo "$rules" >"$3"
shift 3
exec "$@"
