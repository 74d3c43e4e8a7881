#!/bin/bash
# Installs a public Python client of Centrifugo from PyPI, in its own environment, if it is missing.
# The argument is cent or centrifuge-python. Prints the path of the interpreter that has the client.
set -euo pipefail
cd "$(dirname "$0")/../.."
case $1 in
  cent) wanted=5.2.0 module=cent ;;
  centrifuge-python) wanted=0.7.0 module=centrifuge ;;
  *) echo "pypi.sh: no $1 here" >&2; exit 2 ;;
esac
folder=${CARGO_TARGET_DIR:-$PWD/target}/tools/$1-$wanted
if ! "$folder/bin/python" -c "import $module" 2>/dev/null; then
  echo "installing PyPI $1 $wanted" >&2
  python3 -m venv "$folder" >&2
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$1==$wanted" >&2
fi
echo "$folder/bin/python"
