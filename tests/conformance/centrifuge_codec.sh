#!/bin/bash
# Tests our codec of Centrifugo's protocol against that of its public JavaScript client, in both
# directions and encodings. Exits with 3 if the client is neither installed nor available.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/setup/centrifuge.sh || { echo "SKIPPED: npm centrifuge can't be installed"; exit 3; }
export CODEC=${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/centrifuge_codec
# The program is usually built with the Rust tests, but they may not have run yet.
[ -x "$CODEC" ] || cargo build --quiet --locked --package veche-centrifuge --example centrifuge_codec
cd tests/conformance/centrifuge
exec node --test --test-reporter=spec codec.test.mjs
