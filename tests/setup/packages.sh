#!/bin/bash
# packages.sh run|test|full|bench|package|shootout: installs the Debian packages for one of these
# purposes. Prints nothing if all are installed.
set -euo pipefail

declare -A packages=(
  [run]="build-essential ca-certificates curl"
  [test]="chromium composer haproxy libnginx-mod-stream libpam-modules libpam0g mariadb-server netcat-openbsd nginx-light nodejs npm pebble php-cli php-codesniffer php-curl php-fpm php-psr-log phpunit procps prometheus python3 python3-venv redis-server util-linux valgrind"
  [full]="bsdextrautils dnsutils openssl procps slowhttptest testssl.sh"
  [bench]="apache2-utils luajit nginx-light nodejs openssl php-cli procps python3 redis-server util-linux wrk"
  [package]="binutils dpkg musl-tools"
  [shootout]="libasio-dev libnginx-mod-http-lua libwebsocketpp-dev lua-nginx-websocket nodejs npm python3 python3-venv util-linux"
)
# Programs that make a package unnecessary if they were installed in another way, such as a vendor's
# Node.
declare -A command_of=(
  [build-essential]=cc [ca-certificates]=update-ca-certificates [curl]=curl [chromium]=chromium [nodejs]=node [npm]=npm
  [pebble]=pebble [php-cli]=php [php-codesniffer]=phpcs [procps]=ps [prometheus]=promtool [mariadb-server]=mariadbd [python3]=python3 [redis-server]=redis-server [util-linux]=taskset [binutils]=strip [dpkg]=dpkg-deb [musl-tools]=musl-gcc [apache2-utils]=ab [netcat-openbsd]=nc [nginx-light]=nginx [testssl.sh]=testssl [wrk]=wrk
)

purpose=${1:-run}
missing=()
for package in ${packages[$purpose]}; do
  command=${command_of[$package]:-}
  if [ -n "$command" ] && command -v "$command" > /dev/null; then
    continue
  fi
  dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

if ! command -v apt-get > /dev/null; then
  echo "these are missing and there is no apt-get to install them: ${missing[*]}" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "as root: apt-get install ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing ${missing[*]}"
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq > "$log" 2>&1 &&
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >> "$log" 2>&1 ||
  { tail -n 20 "$log" >&2; echo "apt-get failed: $log" >&2; exit 1; }
