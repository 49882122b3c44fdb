#!/bin/sh
# Print the newest Python of this machine that is no preview: of those on PATH and of pyenv's. At least the oldest supported.
set -eu

versions() {
  {
    IFS=:
    for folder in $PATH; do
      ls "$folder"/python3.[0-9]* 2>/dev/null || true
    done
    ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python 2>/dev/null || true
  } | grep -E '/python(3\.[0-9]+)?$' | while read -r python; do
    "$python" -c '
import sys
if sys.version_info >= (3, 11) and sys.version_info.releaselevel == "final":
    print("%03d.%03d" % sys.version_info[1:3], sys.executable)' 2>/dev/null || true
  done
}

newest=$(versions | sort | tail -n 1 | cut -d ' ' -f 2-)
[ -n "$newest" ] || { echo "no Python 3.11 or later on PATH or in pyenv" >&2; exit 1; }
echo "$newest"
