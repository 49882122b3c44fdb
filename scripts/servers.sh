#!/bin/sh
# What the tests run against: Redis, MariaDB, PostgreSQL and RabbitMQ servers, nginx for HTTP/2, and the HTML manual of
# Python as a real site to crawl. Installed with apt where we are root and something is missing. Else the tests that need
# it are skipped, or fail where CI is set.
set -eu

say() { printf '%s\n' "$*" >&2; }
on_path() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
has_redis() { on_path redis-server || on_path valkey-server; }
has_postgres() { ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || on_path initdb; }
has_manual() { ls /usr/share/doc/python3*/html/library/index.html >/dev/null 2>&1; }

wanted=
has_redis || wanted="$wanted redis-server"
on_path mariadbd || wanted="$wanted mariadb-server"
has_postgres || wanted="$wanted postgresql"
on_path rabbitmq-server || wanted="$wanted rabbitmq-server"
on_path nginx || wanted="$wanted nginx-light"
has_manual || wanted="$wanted python3-doc"
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  say "Not installed:$wanted. Tests that need it are skipped; as root: apt-get install$wanted"
  exit 0
fi

say "Installing$wanted …"
log=$(mktemp)
# policy-rc.d: the packages' own services aren't started, the tests start servers of their own.
policy=/usr/sbin/policy-rc.d
ours=
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && ours=yes
fi
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
[ -z "$ours" ] || rm -f "$policy"
rm -f "$log"
