#!/usr/bin/env bash
# Creates .venv and installs Shopfloor (editable). Called by make; safe to call again.
#   setup.sh runtime PYTHON EXTRAS   what running needs
#   setup.sh dev PYTHON              every extra and the development tools too
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1 python=${2:-python3} extras=${3:-models}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "Shopfloor needs Python 3.11 or newer. Install it, then run 'make PYTHON=/path/to/python3.11'." >&2; exit 1; }
[ -x .venv/bin/python ] || { echo "==> creating .venv"; "$python" -m venv .venv || {
  echo "Python's venv module is missing. On Debian or Ubuntu run 'apt-get install python3-venv', then try again." >&2; exit 1; }; }
install() { .venv/bin/python -m pip install --quiet "$@"; }
install --upgrade 'pip>=25.1'
case $what in
  runtime)
    # pip builds the page with a Node in a temporary environment; neither Node nor the npm packages are kept.
    keep=; [ -e web/node_modules ] && keep=1
    echo "==> installing Shopfloor with the extras '$extras' into .venv and building its page (about a minute, once)"
    install --editable ".[$extras]"
    [ -n "$keep" ] || rm -rf web/node_modules
    touch .venv/.runtime ;;
  dev)
    echo "==> installing Shopfloor and its development tools into .venv (about two minutes, once)"
    install --editable '.[models,claude,mcp]' --group dev
    touch .venv/.runtime .venv/.ready ;;
  *) echo "usage: setup.sh runtime|dev PYTHON [EXTRAS]" >&2; exit 2 ;;
esac
