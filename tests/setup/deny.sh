#!/bin/bash
# Installs cargo-deny if it is missing, which takes a few minutes.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo-deny > /dev/null; then
  echo "installing cargo-deny"
  cargo install cargo-deny --version 0.20.2 --locked --quiet
fi
