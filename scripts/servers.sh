#!/bin/sh
# What the tests run against: a Redis server, nginx for HTTP/2, and the HTML manual of Python as a real site to crawl.
# Installed with apt where we are root and something is missing. Else the tests that need it are skipped, or fail
# where CI is set.
set -eu

say() { printf '%s\n' "$*" >&2; }
has_redis() { command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1; }
has_nginx() { [ -x /usr/sbin/nginx ] || command -v nginx >/dev/null 2>&1; }
has_manual() { ls /usr/share/doc/python3*/html/library/index.html >/dev/null 2>&1; }

wanted=
has_redis || wanted="$wanted redis-server"
has_nginx || wanted="$wanted nginx-light"
has_manual || wanted="$wanted python3-doc"
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  say "Not installed:$wanted. Tests that need it are skipped; as root: apt-get install$wanted"
  exit 0
fi

say "Installing$wanted …"
log=$(mktemp)
# RUNLEVEL=1: the package's own Redis service isn't started, the tests start servers of their own.
# path-include: slim images leave documentation out, and that is what is wanted here.
# --reinstall: a package whose documentation was left out counts as installed.
if ! {
  apt-get -q update &&
    # shellcheck disable=SC2086 # several words
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q install -y --no-install-recommends --reinstall \
      -o 'Dpkg::Options::=--path-include=/usr/share/doc/python3*' $wanted
} </dev/null >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  say "apt-get could not install$wanted; tests that need it are skipped"
fi
rm -f "$log"
