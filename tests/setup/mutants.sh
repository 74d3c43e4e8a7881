#!/bin/bash
# Installs cargo-mutants if it is missing. The installation takes a few minutes.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
version=27.1.0
if [ "$(cargo mutants --version 2> /dev/null)" = "cargo-mutants $version" ]; then
  exit 0
fi
echo "installing cargo-mutants $version"
cargo install cargo-mutants --version "$version" --locked --quiet
