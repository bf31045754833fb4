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
      shopfloor list --search folder                          search tasks, output and tools
      shopfloor --help                                        everything else
NEXT
exec shopfloor up --examples "$@"
