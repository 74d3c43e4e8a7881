#!/bin/bash
# What bench/instructions needs beside Debian's Valgrind: the runner of gungraun, in the version of Cargo.toml.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$HOME/.cargo/bin:$PATH"
version=$(sed -n 's/^gungraun = "\(.*\)"/\1/p' Cargo.toml)
if [ "$(gungraun-runner --version 2> /dev/null)" = "gungraun-runner $version" ]; then
  exit 0
fi
echo "installing gungraun-runner $version"
# Unoptimised: it waits for Valgrind and reads what that says.
cargo install gungraun-runner --version "$version" --locked --quiet --debug
