#!/bin/bash
# cargo-deny, when it is missing: a few minutes, once.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo-deny > /dev/null; then
  echo "installing cargo-deny"
  cargo install cargo-deny --version 0.20.2 --locked --quiet
fi
