#!/usr/bin/env bash
# What `make run` shows: a real run, recorded and read back, and what to try next.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
echo "==> recording a first run:"
echo "    shopfloor run --command 'echo \"Hello from the shop floor\"; uname -sm; ls src/shopfloor'"
shopfloor run --command 'echo "Hello from the shop floor"; uname -sm; ls src/shopfloor'
echo
echo "==> reading it back: shopfloor show last"
shopfloor show last
echo
echo "==> its steps: shopfloor tree last"
shopfloor tree last
cat <<'NEXT'

Next, with .venv/bin on your PATH (or `source .venv/bin/activate`):
  shopfloor run --command 'for i in 1 2 3 4 5; do echo $i; sleep 1; done'   watch it; Ctrl-C cancels it
  shopfloor tail last                                                      follow it from another terminal
  shopfloor show last --json | jq .                                        the record, as it is on disk
  shopfloor verify last                                                    hold it against the format
  shopfloor --help                                                         everything else
NEXT
