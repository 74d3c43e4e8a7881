#!/bin/bash
# counts.sh [--if-judged]: installs what bench/instructions needs besides Debian's Valgrind: the runner
# of gungraun, in the version of Cargo.toml. With --if-judged, only on a machine whose counts are
# compared with those of bench/instructions.toml, since the build takes a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$HOME/.cargo/bin:$PATH"
version=$(sed -n 's/^gungraun = "\(.*\)"/\1/p' Cargo.toml)
if [ "$(gungraun-runner --version 2> /dev/null)" = "gungraun-runner $version" ]; then
  exit 0
fi
if [ "${1:-}" = --if-judged ] && ! bench/instructions --is-judged > /dev/null; then
  exit 0
fi
echo "installing gungraun-runner $version"
# The runner is not optimised, since it only waits for Valgrind and reads Valgrind's output.
cargo install gungraun-runner --version "$version" --locked --quiet --debug
