#!/bin/bash
# Installs Rust with rustup if there is no cargo; rust-toolchain.toml names the version, which
# rustup then installs.
set -euo pipefail
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo > /dev/null; then
  # The installer that the script of https://rustup.rs downloads and runs.
  origin=https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init
  echo "installing Rust into ~/.cargo and ~/.rustup, by $origin"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cd "$folder"
  if ! curl --proto '=https' --tlsv1.2 -sSfO "$origin" -O "$origin.sha256"; then
    echo "it cannot be fetched: install Rust yourself (https://rustup.rs) so that cargo is on the PATH, then try again" >&2
    exit 1
  fi
  echo "$(cut -c 1-64 rustup-init.sha256)  rustup-init" | sha256sum --check --quiet
  chmod +x rustup-init
  ./rustup-init -y --quiet --no-modify-path --profile minimal --default-toolchain none
  cd - > /dev/null
fi
cd "$(dirname "$0")/../.."
# Makes rustup install the pinned toolchain with its components, if it is missing.
cargo --version > /dev/null
