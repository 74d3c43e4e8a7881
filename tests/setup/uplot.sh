#!/bin/bash
# Installs uPlot, which draws the charts of the admin page, from the npm registry into web/vendor,
# whose files are built into the binary. Without it the page shows a note instead of the charts, and
# everything else works. Prints nothing if uPlot is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=1.6.32
sha512=2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023
folder=web/vendor/uplot
if grep -qs "(v$version)" "$folder/uPlot.iife.min.js" && [ -f "$folder/uPlot.min.css" ] && [ -f "$folder/LICENSE" ]; then
  exit 0
fi
echo "fetching uPlot $version from the npm registry"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! curl -fsS --retry 2 -o "$work/uplot.tgz" "https://registry.npmjs.org/uplot/-/uplot-$version.tgz"; then
  echo "no uPlot: the admin page will have no charts" >&2
  exit 0
fi
echo "$sha512  $work/uplot.tgz" | sha512sum --check --quiet
tar -xzf "$work/uplot.tgz" -C "$work"
mkdir -p "$folder"
cp "$work/package/dist/uPlot.iife.min.js" "$work/package/dist/uPlot.min.css" "$work/package/LICENSE" "$folder/"
chmod 644 "$folder"/*
# Cargo does not notice new files, so the source file that embeds them is touched.
touch crates/server/src/files.rs
