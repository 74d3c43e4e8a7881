#!/bin/bash
# Rust by rustup when there is no cargo; rust-toolchain.toml says which, and rustup fetches that one by itself.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo > /dev/null; then
  echo "installing rustup (https://rustup.rs) into ~/.cargo"
  script=$(mktemp)
  trap 'rm -f "$script"' EXIT
  if ! curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs -o "$script"; then
    echo "https://sh.rustup.rs cannot be reached: install Rust yourself so that cargo is on the PATH, then try again" >&2
    exit 1
  fi
  sh "$script" -y --quiet --no-modify-path --profile minimal --default-toolchain none
fi
cd "$(dirname "$0")/../.."
cargo --version > /dev/null
