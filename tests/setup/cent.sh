#!/bin/bash
# Centrifugo's public Python client of its server API, as the tests use it, when it is missing: from PyPI, in an
# environment of its own. Says which interpreter has it.
set -euo pipefail
cd "$(dirname "$0")/../.."
wanted=5.2.0
folder=${CARGO_TARGET_DIR:-$PWD/target}/tools/cent-$wanted
if ! "$folder/bin/python" -c "import cent" 2>/dev/null; then
  echo "installing PyPI cent $wanted" >&2
  python3 -m venv "$folder" >&2
  "$folder/bin/pip" install --quiet --disable-pip-version-check "cent==$wanted" >&2
fi
echo "$folder/bin/python"
