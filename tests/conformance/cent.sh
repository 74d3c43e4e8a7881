#!/bin/bash
# Centrifugo's public Python client of its server API, as it is, against a real server. Takes VECHE_BIN, by default the
# newest of target/*/veche. Exit 3 where the client is not installed and can't be had.
set -euo pipefail
cd "$(dirname "$0")"
python=$(../setup/pypi.sh cent) || { echo "SKIPPED: PyPI cent can't be installed"; exit 3; }
exec "$python" cent_client.py
