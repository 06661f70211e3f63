#!/bin/bash
# Usage: redis.sh FOLDER SERVER COMMAND...
# Makes FOLDER, which only the user may enter, and repairs the append-only file in it. Then runs COMMAND, which starts
# Redis there. SERVER is the Redis binary.
#
# Redis writes the changes of a Lua script between MULTI and EXEC. If a crash cuts the file between the two, Redis
# (6.2 and 7.0) ignores these changes when it loads the file but leaves the MULTI in it. The EXEC of the next
# transaction then commits both at the following load, so some changes take effect twice. To prevent this, the bytes
# after the last complete transaction are moved to a file of their own before Redis starts.
set -eu
mkdir -p "$1"
chmod 700 "$1" # it holds the socket
cd "$1"
server=$2
shift 2

aof=appendonly.aof last=
if [ -f appendonlydir/$aof.manifest ]; then # Redis 7 has several files and appends to the last
    aof=appendonlydir/$aof.manifest
    last=$(sed -En '$s/^file ([^ ]+) .*/\1/p' "$aof")
fi
if [ -f "$aof" ]; then
    # A redis-server that is called redis-check-aof acts as that program.
    report=$(exec -a redis-check-aof "$server" "$aof" </dev/null) || true
    found=$(sed -En 's/^AOF analyzed: (filename=[^,]*, )?size=([0-9]+), ok_up_to=([0-9]+),.*/\2 \3 \1/p' <<<"$report")
    read -r size sound name <<<"${found##*$'\n'}"
    file=$(dirname "$aof")/${last:-$aof}
    if [ "${size:-0}" != "${sound:-0}" ] && [ "$name" = "${last:+filename=$last,}" ]; then
        tail -c "+$((sound + 1))" "$file" >"$file.cut-at-$sound"
        if grep -qa '^EXEC' "$file.cut-at-$sound"; then
            rm "$file.cut-at-$sound"
            echo "$file is damaged at byte $sound of $size, and complete transactions follow: left as it is" >&2
        else
            sync "$file.cut-at-$sound"
            truncate -s "$sound" "$file"
            echo "$file ended within a transaction: its last $((size - sound)) bytes are now $file.cut-at-$sound" >&2
        fi
    fi
fi
exec "$@"
