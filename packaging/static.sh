#!/bin/bash
# static.sh FOLDER: builds the release binary without any library of the system, for any Linux of this architecture.
# LuaJIT is built by musl-gcc, which tests/setup/packages.sh package installs.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
target=$(uname -m)-unknown-linux-musl
rustup target list --installed | grep -qx "$target" || rustup --quiet target add "$target"
# LuaJIT's build links a program that is never run. It is linked with a library of gcc that refers
# to this function of glibc, which musl lacks.
export LDFLAGS="-Wl,--defsym=_dl_find_object=0"
cargo build --release --quiet --locked --package veche --target "$target"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
binary=$out/veche-$version-$(uname -m)-static
mkdir -p "$out"
install -m 755 "${CARGO_TARGET_DIR:-target}/$target/release/veche" "$binary"
packaging/strip.sh "$binary" "$binary.debug"
# `ldd` is not used, since it fails for a static binary with "not a dynamic executable".
if readelf --program-headers "$binary" | grep -q INTERP; then
  echo "$binary asks for a dynamic linker" >&2
  exit 1
fi
echo "$binary"
