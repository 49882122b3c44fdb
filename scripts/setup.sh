#!/bin/sh
# Make the environment VENV (default .venv) from requirements-dev.lock and install this checkout into it, editable.
# Run by `make`, when pyproject.toml or the lock file is newer than its .installed. PYTHON=… names the interpreter.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

say() { printf '%s\n' "$*" >&2; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
  if is_new_enough "$candidate"; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  found=$(${PYTHON:-python3} --version 2>&1 | head -n 1)
  say "netspy needs Python 3.11 or later; found: ${found:-none}"
  say "Install one, or name it: make PYTHON=/path/to/python3.12 $*"
  exit 1
fi

if ! is_new_enough "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  say "Making $venv with $("$python" --version) …"
  if ! why=$("$python" -m venv --clear "$venv" 2>&1); then
    # Debian and Ubuntu keep this part of Python in a package of its own.
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
      say "Installing $package …"
      apt-get -qq update >/dev/null || true
      apt-get -qq install -y --no-install-recommends "$package" </dev/null >/dev/null
      "$python" -m venv --clear "$venv"
    else
      say "$why"
      say "If the venv module is missing: apt-get install $package, as root"
      exit 1
    fi
  fi
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

say "Installing $(grep -c '==' requirements-dev.lock) packages into $venv, once; that takes a minute or two …"
pip install -qq -r requirements-dev.lock
# What builds netspy is in the lock file too, so that nothing else is fetched.
pip install -qq --no-deps --no-build-isolation --editable .
touch "$venv/.installed"
