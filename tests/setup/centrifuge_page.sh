#!/bin/bash
# Installs Centrifugo's public JavaScript client for pages from the npm registry. The page of examples/chat needs the
# client. If the client's files are in web/vendor, they are also built into the binary for the demo page. Exits with 1
# if the registry can't be reached. Prints nothing if the files exist.
set -euo pipefail
cd "$(dirname "$0")/../.."
# The version that the tests of the protocol use, and the digest that is in their package-lock.json.
version=5.8.0
sha512=10d1f58f3e95791b866f7c87361801d15d12a91297fa261db4cf43bbf139f66e3ce1ea6334f7ec809c3851b98e9a38125c6122b5ad54a0e5e567a05ad68a13d6
folders=(examples/chat/public/vendor web/vendor/centrifuge)
is_there() {
  local folder
  for folder in "${folders[@]}"; do
    [ -f "$folder/centrifuge.js" ] && [ -f "$folder/LICENSE" ] && grep -qs "$version" "$folder/VERSION" || return 1
  done
}
if is_there; then
  exit 0
fi
echo "fetching npm centrifuge $version for pages"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -fsS --retry 2 -o "$work/package.tgz" "https://registry.npmjs.org/centrifuge/-/centrifuge-$version.tgz"
echo "$sha512  $work/package.tgz" | sha512sum --check --quiet
tar -xzf "$work/package.tgz" -C "$work"
# The source map is not installed, so the line that refers to it is removed.
sed -i '/^\/\/# sourceMappingURL=/d' "$work/package/dist/centrifuge.js"
echo "$version" > "$work/VERSION"
for folder in "${folders[@]}"; do
  mkdir -p "$folder"
  install -m 644 "$work/package/dist/centrifuge.js" "$work/package/LICENSE" "$work/VERSION" "$folder/"
done
# Cargo does not notice new files, so the source file that embeds them is touched.
touch crates/server/src/files.rs
