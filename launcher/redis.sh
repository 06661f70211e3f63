#!/bin/bash
# redis.sh FOLDER SERVER COMMAND...: becomes COMMAND, a Redis whose data lie in FOLDER; SERVER is its binary.
#
# A Lua script's writes stand in the append-only file between MULTI and EXEC. Where a crash ended the file between the
# two, Redis (6.2 and 7.0 do) forgets these writes but leaves the MULTI in the file: the next transaction's EXEC then
# commits both at the load after, so some writes take effect twice. Therefore what follows the last whole transaction
# is moved into a file of its own first.
set -eu
cd "$1"
server=$2
shift 2

aof=appendonly.aof last=
if [ -f appendonlydir/$aof.manifest ]; then # Redis 7: several files, of which the last is written to
    aof=appendonlydir/$aof.manifest
    last=$(sed -En '$s/^file ([^ ]+) .*/\1/p' "$aof")
fi
if [ -f "$aof" ]; then
    # Every redis-server is redis-check-aof too, when it is called so.
    report=$(exec -a redis-check-aof "$server" "$aof" </dev/null) || true
    found=$(sed -En 's/^AOF analyzed: (filename=[^,]*, )?size=([0-9]+), ok_up_to=([0-9]+),.*/\2 \3 \1/p' <<<"$report")
    read -r size sound name <<<"${found##*$'\n'}"
    file=$(dirname "$aof")/${last:-$aof}
    if [ "${size:-0}" != "${sound:-0}" ] && [ "$name" = "${last:+filename=$last,}" ]; then
        tail -c "+$((sound + 1))" "$file" >"$file.cut-at-$sound"
        if grep -qa '^EXEC' "$file.cut-at-$sound"; then
            rm "$file.cut-at-$sound"
            echo "$file is damaged at byte $sound of $size, and whole transactions follow: left as it is" >&2
        else
            sync "$file.cut-at-$sound"
            truncate -s "$sound" "$file"
            echo "$file ended within a transaction: its last $((size - sound)) bytes are now $file.cut-at-$sound" >&2
        fi
    fi
fi
exec "$@"
