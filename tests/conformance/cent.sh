#!/bin/bash
# Runs Centrifugo's public Python client of its server API, unmodified, against a real server. Takes
# VECHE_BIN, by default the newest of target/*/veche. Exits with 3 if the client is neither
# installed nor available.
set -euo pipefail
cd "$(dirname "$0")"
python=$(../setup/pypi.sh cent) || { echo "SKIPPED: PyPI cent can't be installed"; exit 3; }
exec "$python" cent_client.py
