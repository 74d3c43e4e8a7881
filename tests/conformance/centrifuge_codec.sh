#!/bin/bash
# Our codec of Centrifugo's protocol against the one of its public JavaScript client, in both directions and encodings.
# Exit 3 where the client is not installed and can't be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/setup/centrifuge.sh || { echo "SKIPPED: npm centrifuge can't be installed"; exit 3; }
export CODEC=${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/centrifuge_codec
# Built with the tests, which may not have run before this.
[ -x "$CODEC" ] || cargo build --quiet --locked --package veche-centrifuge --example centrifuge_codec
cd tests/conformance/centrifuge
exec node --test --test-reporter=spec codec.test.mjs
