#!/usr/bin/env bash
# What `make run` does: starts the server on this machine, with a few real runs to look at on its first start.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
cat <<'NEXT'
==> starting Shopfloor; open the link that follows in a browser.
    In another terminal, with .venv/bin on your PATH (or after `source .venv/bin/activate`), try:
      shopfloor list                                          the runs, newest first
      shopfloor show last                                     read one back
      shopfloor run --command 'for i in 1 2 3; do echo $i; sleep 1; done'
      shopfloor tail last                                     follow it from yet another terminal
      shopfloor run word-count 'some words to count'          a plugin: a program of its own that accepts tasks
      shopfloor list --search folder                          search tasks, output and tools
      shopfloor --help                                        everything else
NEXT
# The example plugin of this folder is code of this repository. If its folder cannot be used, the page says why.
shopfloor plugins allow plugins/word-count > /dev/null 2>&1 || true
exec shopfloor up --examples "$@"
