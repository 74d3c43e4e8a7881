#!/bin/bash
# A back end in shell that pushes over TCP or HTTP.
#   ./push.sh tester01 "hello"            one line of JSON over TCP, with bash alone
#   ./push.sh --http tester01 "hello"     the HTTP API, with curl
# Exits with 1 if Veche is not running or refuses.
set -euo pipefail

push=${VECHE_PUSH:-127.0.0.1:1234}
api=${VECHE_API:-http://127.0.0.1:8081/api}
key=${VECHE_KEY:-demo}

# Encodes any text as a JSON string: the quote, the backslash and control characters must be
# escaped.
json() {
    local text=$1 out='' char i
    for ((i = 0; i < ${#text}; i++)); do
        char=${text:i:1}
        case $char in
            '"' | '\') out+="\\$char" ;;
            [$'\x01'-$'\x1f']) out+=$(printf '\\u%04x' "'$char") ;;
            *) out+=$char ;;
        esac
    done
    printf '"%s"' "$out"
}

by_line() {
    { exec 3<>"/dev/tcp/${push%:*}/${push##*:}"; } 2>/dev/null || return
    printf '%s\n' "{\"user\":$(json "$1"),\"data\":$(json "$2"),\"ack\":true}" >&3
    read -r -t 2 answer <&3
}

by_http() {
    answer=$(curl --silent --show-error --fail --max-time 2 "$api/push" \
        -H "X-API-Key: $key" -H 'Content-Type: application/json' \
        -d "{\"user\":$(json "$1"),\"data\":$(json "$2")}")
}

way=by_line
if [[ ${1-} == --http ]]; then
    way=by_http
    shift
fi
if (($# != 2)); then
    echo "usage: push.sh [--http] USER MESSAGE" >&2
    exit 2
fi

answer=''
"$way" "$1" "$2" || { echo "not pushed: Veche does not answer" >&2; exit 1; }
if [[ $answer =~ \"handed\":\ ?([0-9]+) ]]; then
    echo "handed to ${BASH_REMATCH[1]}"
elif [[ $answer =~ \"result\":\ ?\{ ]]; then
    # With Redis, Veche does not know the number of receivers.
    echo "published"
else
    echo "not pushed: $answer" >&2
    exit 1
fi
