#!/bin/bash
# Installs Centrifugo's public JavaScript client for the protocol tests from the npm registry, if it
# is missing.
set -euo pipefail
cd "$(dirname "$0")/../conformance/centrifuge"
wanted=$(sed -n 's/.*"centrifuge": "\(.*\)".*/\1/p' package.json)
if grep -qs "\"version\": \"$wanted\"" node_modules/centrifuge/package.json; then
  exit 0
fi
echo "installing npm centrifuge $wanted"
npm ci --no-audit --no-fund --ignore-scripts --silent
