#!/bin/bash
# Checks the dependencies by deny.toml: licences, bans and sources offline; advisories only if their
# database is available.
# VECHE_ADVISORIES=FOLDER is a clone of https://github.com/RustSec/advisory-db for machines without the internet.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo-deny > /dev/null; then
  echo "SKIPPED: cargo-deny is not installed (tests/setup/deny.sh)"
  exit 3
fi

failed=0
for manifest in Cargo.toml fuzz/Cargo.toml; do
  cargo fetch --quiet --locked --manifest-path "$manifest"
  cargo deny --manifest-path "$manifest" --config deny.toml --offline --locked check --hide-inclusion-graph \
    licenses bans sources || failed=1
done

database=https://github.com/RustSec/advisory-db
if [ -n "${VECHE_ADVISORIES:-}" ]; then
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$VECHE_ADVISORIES.insteadOf" GIT_CONFIG_VALUE_0=$database
fi
if ! GIT_TERMINAL_PROMPT=0 git ls-remote --quiet --exit-code $database HEAD > /dev/null 2>&1; then
  echo "SKIPPED: advisories: their database is out of reach; VECHE_ADVISORIES=FOLDER names a copy"
  exit "$failed"
fi
cargo deny --manifest-path Cargo.toml --config deny.toml check --hide-inclusion-graph advisories || failed=1
exit "$failed"
