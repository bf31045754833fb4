#!/usr/bin/env bash
# Makes .venv with Shopfloor (editable) and its development tools. Called by make; safe to call again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "Shopfloor needs Python 3.11 or newer: install it, then say 'make PYTHON=/path/to/python3.11'." >&2; exit 1; }
[ -x .venv/bin/python ] || { echo "==> making .venv"; "$python" -m venv .venv || {
  echo "The venv module is missing: on Debian or Ubuntu 'apt-get install python3-venv', then again." >&2; exit 1; }; }
echo "==> installing Shopfloor and its development tools into .venv (about a minute, once)"
.venv/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
.venv/bin/python -m pip install --quiet --editable '.[models,claude]' --group dev
