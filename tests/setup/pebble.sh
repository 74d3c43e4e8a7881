#!/bin/bash
# Installs Pebble, the certificate authority of the ACME tests, from the Go module proxy into
# target/tools. Without it, the tests are reported as skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.10.1
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
if [ -x "$tools/pebble" ] && [ "$(cat "$tools/pebble.version" 2> /dev/null)" = "$version" ]; then
  exit 0
fi
tests/setup/go.sh
if ! command -v go > /dev/null; then
  echo "no Pebble, as there is no Go: the tests of ACME will be skipped" >&2
  exit 0
fi
echo "installing Pebble $version from the Go module proxy"
mkdir -p "$tools"
log=$(mktemp)
if GOBIN=$(cd "$tools" && pwd) go install "github.com/letsencrypt/pebble/v2/cmd/pebble@$version" > "$log" 2>&1; then
  echo "$version" > "$tools/pebble.version"
else
  tail -n 5 "$log" >&2
  echo "no Pebble: the tests of ACME will be skipped" >&2
fi
