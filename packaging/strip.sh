#!/bin/bash
# strip.sh BINARY SYMBOLS: moves the symbols of a binary to a separate file, which debuggers find by
# its name and checksum in the folder of the binary, or in /usr/lib/debug.
set -euo pipefail

binary=$1
symbols=$2
objcopy --only-keep-debug "$binary" "$symbols"
strip "$binary"
objcopy --add-gnu-debuglink="$symbols" "$binary"
