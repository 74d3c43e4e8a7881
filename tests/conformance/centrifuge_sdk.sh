#!/bin/bash
# Centrifugo's public JavaScript client, as it is, against a real server. Takes VECHE_BIN, by default the newest of
# target/*/veche. Exit 3 where the client is not installed and can't be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/setup/centrifuge.sh || { echo "SKIPPED: npm centrifuge can't be installed"; exit 3; }
target=${CARGO_TARGET_DIR:-$PWD/target}
export VECHE_BIN=${VECHE_BIN:-$(ls -t "$target"/{release,debug}/veche 2>/dev/null | head -1)}
[ -x "$VECHE_BIN" ] || { echo "no veche under $target: cargo build first" >&2; exit 1; }
cd tests/conformance/centrifuge
# Node before 22 has its WebSocket behind a flag.
exec node --experimental-websocket --test --test-reporter=spec sdk.test.mjs
