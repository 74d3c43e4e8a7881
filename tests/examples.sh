#!/bin/bash
# Runs each back end of examples/push against a real server, with a message that needs correct
# quoting; then the snippets of README.md and of the guides to pushing and PHP, and the tests of
# examples/chat. A client that uses only Python's standard library opens the WebSocket and prints
# what arrives.
set -euo pipefail
source "$(dirname "$0")/demo_server.sh"

cd "$root/examples/push"
user="tester 01 & co"
message=$'it\'s "quoted", \\n and\ttab, $(id), вече 🔔'
failed=0

# check NAME EXPECTED-OUTPUT COMMAND...: runs the command while a client is open as $user.
check() {
    local name=$1 expected=$2 output arrived
    shift 2
    coproc client { exec python3 "$root/tests/listen_once.py" "$VECHE_URL" "$user"; }
    local client_pid=$client_PID from=${client[0]}
    read -r -t 5 _ <&"$from"                      # "open"
    output=$("$@" 2>&1) || true
    read -r -t 5 arrived <&"$from" || arrived='(nothing)'
    kill "$client_pid" 2>/dev/null || true
    wait "$client_pid" 2>/dev/null || true
    if [[ $output == "$expected" && $arrived == "$(as_json "$message")" ]]; then
        echo "ok      $name"
    else
        echo "FAILED  $name: printed '$output', arrived $arrived"
        failed=1
    fi
}

as_json() { python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"; }

# refused NAME COMMAND...: the command must fail with an error message.
refused() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1) || [[ -z $output ]]; then
        echo "FAILED  $name: it should have been refused, but printed '$output'"
        failed=1
    else
        echo "ok      $name"
    fi
}

check "PHP, TCP line"     "handed to 1" php push.php "$user" "$message"
check "Python, TCP line"  "handed to 1" python3 push.py "$user" "$message"
check "Python, HTTP"      "handed to 1" python3 push.py --http "$user" "$message"
check "shell, TCP line"   "handed to 1" ./push.sh "$user" "$message"
check "shell, HTTP"       "handed to 1" ./push.sh --http "$user" "$message"

python3 "$root/tests/snippets.py" "$root"/{README.md,docs/guide/push.md} || failed=1
python3 "$root/tests/php_guide.py" || failed=1
python3 "$root/tests/push_backends.py" || failed=1

# Lua tests of the chat. Those of the other examples run with the tests of `veche new`.
secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
(cd "$root/examples/chat" && CHAT_SECRET=$secret "$VECHE_BIN" test --runs 3) || failed=1

export VECHE_KEY=wrong
refused "Python, HTTP, wrong key" python3 push.py --http "$user" x
refused "shell, HTTP, wrong key"  ./push.sh --http "$user" x
export VECHE_KEY=demo VECHE_PUSH=127.0.0.1:1 VECHE_API=http://127.0.0.1:1/api
refused "PHP, no server"          php push.php "$user" x
refused "Python, no server"       python3 push.py "$user" x
refused "shell, no server"        ./push.sh "$user" x

exit "$failed"
