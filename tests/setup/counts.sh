#!/bin/bash
# Installs what bench/instructions needs besides Debian's Valgrind: the runner of gungraun, in the
# version of Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$HOME/.cargo/bin:$PATH"
version=$(sed -n 's/^gungraun = "\(.*\)"/\1/p' Cargo.toml)
if [ "$(gungraun-runner --version 2> /dev/null)" = "gungraun-runner $version" ]; then
  exit 0
fi
echo "installing gungraun-runner $version"
# The runner is not optimised, since it only waits for Valgrind and reads Valgrind's output.
cargo install gungraun-runner --version "$version" --locked --quiet --debug
