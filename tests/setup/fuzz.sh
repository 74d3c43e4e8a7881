#!/bin/bash
# Installs cargo-fuzz if it is missing. It uses the pinned toolchain, so no nightly is installed.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo-fuzz > /dev/null; then
  echo "installing cargo-fuzz"
  cargo install cargo-fuzz --version 0.13.1 --locked --quiet
fi
