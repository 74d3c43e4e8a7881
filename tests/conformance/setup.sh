#!/bin/bash
# Installs Autobahn's test suite, which is Python 2.7 code, into $VECHE_AUTOBAHN (default ~/.cache/veche/autobahn). This takes a minute.
# Uses the CPython 2.7 of $PY27, python2.7 on the PATH, or pyenv's 2.7.18. Exits with 3 if there is none.
set -euo pipefail
home=${VECHE_AUTOBAHN:-$HOME/.cache/veche/autobahn}
if [ -x "$home/bin/wstest" ]; then
  exit 0
fi

# A pyenv shim may exist without its Python, so the interpreter is run as a test.
python=${PY27:-}
if [ -z "$python" ]; then
  for candidate in python2.7 "$(pyenv prefix 2.7.18 2>/dev/null || true)/bin/python"; do
    if "$candidate" -c '' 2>/dev/null; then
      python=$(command -v "$candidate")
      break
    fi
  done
fi
if [ -z "$python" ]; then
  echo "Autobahn needs CPython 2.7 and there is none: set PY27=/path/to/python2.7, or install one (pyenv install 2.7.18)" >&2
  exit 3
fi

# virtualenv 20.21 is the last release that makes Python 2.7 environments. The other pinned packages are the
# last releases that run on Python 2.7.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet 'virtualenv==20.21.1'
"$scratch/venv/bin/virtualenv" --quiet --python "$python" "$home"
"$home/bin/pip" install --quiet --no-python-version-warning autobahntestsuite==25.10.1 \
  autobahn==0.10.9 cryptography==3.3.2 pyOpenSSL==19.1.0 Twisted==19.10.0 txaio==2.1.0 ujson==2.0.3 wsaccel==0.6.6
"$home/bin/wstest" --help > /dev/null
echo "installed $home/bin/wstest"
