#!/usr/bin/env bash
# Makes sure that commands of the system are there: `system-packages.sh jq unshare:util-linux` (command[:package]).
# Installs them where it may, else says in one line what to do.
set -euo pipefail
missing=()
for want in "$@"; do
  command -v "${want%%:*}" >/dev/null || missing+=("${want##*:}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "==> installing ${missing[*]}"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "${missing[@]}" >/dev/null && exit 0
fi
echo "The tests need ${missing[*]}: install it (on Debian or Ubuntu: sudo apt-get install ${missing[*]}), then again." >&2
exit 1
