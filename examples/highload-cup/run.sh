#!/bin/sh
# Starts the service with the data of a folder, or of a data.zip with options.txt in it or beside it.
#   PORT    8080 by default, on all addresses
#   DATA    ./data by default
#   VECHE   the program, `veche` by default
#   WORKERS one for each core by default
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=${DATA:-$here/data}
[ -e "$data" ] || { echo "there is no $data: name the data by DATA=…, or make it by generate.py $data" >&2; exit 1; }
data=$(realpath "$data")

# The application can't read options.txt, so the configuration passes the timestamp from that file
# to it.
[ -d "$data" ] && folder=$data || folder=$(dirname "$data")
[ -f "$data/data.zip" ] && data=$data/data.zip
if [ -f "$folder/options.txt" ]; then
  options=$(cat "$folder/options.txt")
else
  options=$(python3 -c 'import sys, zipfile; print(zipfile.ZipFile(sys.argv[1]).read("options.txt").decode())' "$data")
fi
now=$(echo "$options" | head -n 1 | tr -dc 0-9)

config=$(mktemp -d)
sed -e "s|^address = .*|address = \"0.0.0.0:${PORT:-8080}\"|" \
    -e "s|^script = .*|script = \"$here/app.lua\"|" \
    -e "s|^workers = .*|workers = ${WORKERS:-\"auto\"}|" \
    -e "s|^options = .*|options = { data = \"$data\", now = $now }|" \
    "$here/veche.toml" > "$config/veche.toml"
exec "${VECHE:-veche}" serve -c "$config/veche.toml"
