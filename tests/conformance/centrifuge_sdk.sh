#!/bin/bash
# Runs Centrifugo's public JavaScript client, unmodified, against a real server. Takes VECHE_BIN, by
# default the newest of target/*/veche. Exits with 3 if the client is neither installed nor
# available.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/setup/centrifuge.sh || { echo "SKIPPED: npm centrifuge can't be installed"; exit 3; }
target=${CARGO_TARGET_DIR:-$PWD/target}
export VECHE_BIN=${VECHE_BIN:-$(ls -t "$target"/{release,debug}/veche 2>/dev/null | head -1)}
[ -x "$VECHE_BIN" ] || { echo "no veche under $target: cargo build first" >&2; exit 1; }
cd tests/conformance/centrifuge
# Before version 22, Node enables its WebSocket only with a flag.
exec node --experimental-websocket --test --test-reporter=spec sdk.test.mjs
