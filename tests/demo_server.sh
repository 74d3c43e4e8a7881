# Sourced by tests that need the demo running: starts `veche serve` with examples/push/veche.toml
# on free ports, waits until it is ready, and ends it when the test ends.
#
# Takes   VECHE_BIN     the binary; by default the newest of target/*/veche
# Gives   VECHE_URL, VECHE_API, VECHE_PUSH, VECHE_KEY, VECHE_CONFIG, VECHE_PID (the supervisor), VECHE_LOG

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

if [[ -z ${VECHE_BIN:-} ]]; then
    VECHE_BIN=$(ls -t "$target"/{release,debug}/veche 2>/dev/null | head -1 || true)
    [[ -n $VECHE_BIN ]] || { echo "no veche under $target: cargo build first" >&2; exit 1; }
fi

demo_folder=$(mktemp -d)
VECHE_CONFIG=$demo_folder/veche.toml
VECHE_LOG=$demo_folder/veche.log
VECHE_KEY=demo

# Prints three ports that were free a moment ago. If another program takes one first, the start is
# tried again.
free_ports() {
    python3 - <<'PYTHON'
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(socket_.getsockname()[1] for socket_ in held))
PYTHON
}

write_demo_config() {
    local public internal push
    read -r public internal push < <(free_ports)
    sed -e "s/127\.0\.0\.1:8080/127.0.0.1:$public/" -e "s/127\.0\.0\.1:8081/127.0.0.1:$internal/" \
        -e "s/127\.0\.0\.1:1234/127.0.0.1:$push/" "$root/examples/push/veche.toml" > "$VECHE_CONFIG"
    VECHE_URL=http://127.0.0.1:$public
    VECHE_API=http://127.0.0.1:$internal/api
    VECHE_PUSH=127.0.0.1:$push
}

start_demo() {
    local try
    "$VECHE_BIN" serve -c "$VECHE_CONFIG" >> "$VECHE_LOG" 2>&1 &
    VECHE_PID=$!
    for ((try = 0; try < 100; try++)); do
        curl -sf -o /dev/null "${VECHE_API%/api}/health" && return
        kill -0 "$VECHE_PID" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# The first SIGTERM drains the server, the second one ends it at once.
stop_demo() {
    [[ -n ${VECHE_PID:-} ]] || return 0
    kill "$VECHE_PID" 2>/dev/null || true
    sleep 0.2
    kill "$VECHE_PID" 2>/dev/null || true
    wait "$VECHE_PID" 2>/dev/null || true
    VECHE_PID=
}

end_demo() {
    local status=$?
    stop_demo
    ((status == 0)) || tail -20 "$VECHE_LOG" >&2
    rm -rf "$demo_folder"
}
trap end_demo EXIT

write_demo_config
start_demo || { stop_demo; write_demo_config; start_demo; } || { echo "veche serve did not get ready" >&2; exit 1; }
export VECHE_BIN VECHE_URL VECHE_API VECHE_PUSH VECHE_KEY VECHE_CONFIG VECHE_PID VECHE_LOG
