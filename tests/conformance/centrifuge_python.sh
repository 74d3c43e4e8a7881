#!/bin/bash
# Runs Centrifugo's public Python client, unmodified, against a real server. Takes VECHE_BIN, by
# default the newest of target/*/veche. Exits with 3 if the client is neither installed nor
# available.
set -euo pipefail
cd "$(dirname "$0")"
python=$(../setup/pypi.sh centrifuge-python) || { echo "SKIPPED: PyPI centrifuge-python can't be installed"; exit 3; }
exec "$python" centrifuge_python.py
