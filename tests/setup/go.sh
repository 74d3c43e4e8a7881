#!/bin/bash
# Installs Go for the peers, unless a version is installed that fetches the one named in go.mod
# (1.21 or later). Debian 12 has an older version, so its backports are used. Without Go, the peers
# written in Go are reported as absent.
set -euo pipefail

fetches_itself() {
  command -v go > /dev/null || return 1
  local version
  version=$(go env GOVERSION)
  [[ $version =~ ^go1\.([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -ge 21 ]
}

if fetches_itself; then
  exit 0
fi
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
if [ "$release" != bookworm ] || ! command -v apt-get > /dev/null; then
  echo "install Go 1.21 or newer (https://go.dev/dl) so that go is on the PATH; without it the Go peers are absent" >&2
  exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "as root: tests/setup/go.sh" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing Go from bookworm-backports"
log=$(mktemp)
echo "deb http://deb.debian.org/debian bookworm-backports main" |
  "${sudo[@]}" tee /etc/apt/sources.list.d/bookworm-backports.list > /dev/null
# Debian's golang-1.19 may stay installed, since /usr/bin/go is then the backported version.
"${sudo[@]}" apt-get update -qq > "$log" 2>&1 &&
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -t bookworm-backports golang-go >> "$log" 2>&1 ||
  { tail -n 20 "$log" >&2; echo "apt-get failed: $log" >&2; exit 1; }
