"""Private MariaDB and PostgreSQL servers for tests: real processes on free ports, data in a temporary folder.

    with MariaDbServer() as server:
        url = server.create_database()
        server.kill()
        server.restart()

Nothing is synced to the disk: what was committed survives `kill`, since the operating system has it, but not a crash
of the machine. User and password hold characters that URLs give a meaning, so that every test meets them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from netspy.testing.children import wait_until
from netspy.testing.private_server import PrivateServer

if TYPE_CHECKING:
    from collections.abc import Sequence

START_TIMEOUT = 60.0
USER = "netspy"
PASSWORD = "s3c:r/e@t %41#?"


def find_mariadb() -> str | None:
    """The server program `mariadbd`, or None."""
    return _find("mariadbd", "/usr/sbin")


def find_postgres() -> str | None:
    """The server program `postgres` of the newest version installed, or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    return _find("postgres", *(str(folder) for folder in reversed(folders)))


def _find(name: str, *folders: str) -> str | None:
    return shutil.which(name) or next(
        (str(Path(folder) / name) for folder in folders if (Path(folder) / name).exists()), None
    )


class SqlServer(PrivateServer):
    """One server process; `MariaDbServer` and `PostgresServer` are used like each other."""

    scheme = ""

    def __init__(self, binary: str | None) -> None:
        if binary is None:
            raise FileNotFoundError(f"no server program of {type(self).__name__} is installed")
        super().__init__(binary, prefix="netspy-sql-")
        self._made = False
        self._numbers = itertools.count(1)

    # ---- addresses

    def url(self, database: str = "netspy", *, port: int | None = None) -> str:
        """The URL of a database; `port` is another way there, a proxy's."""
        secret = quote(PASSWORD, safe="")
        return f"{self.scheme}://{USER}:{secret}@{self.host}:{port or self.port}/{database}"

    # ---- what a test does to it

    def create_database(self, name: str | None = None) -> str:
        """An empty database, by default of a name of its own; its URL."""
        name = name or f"test{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database and what is in it."""
        raise NotImplementedError

    def execute(
        self, sql: str, parameters: Sequence[Any] = (), *, database: str = ""
    ) -> list[tuple[Any, ...]]:
        """Run one statement as an administrator, committed at once; its rows."""
        with contextlib.closing(self._admin(database)) as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    # ---- life

    def start(self) -> Self:
        """Start it, making its data folder first, and wait until it answers. Raises RuntimeError with the log."""
        if self.alive:
            raise RuntimeError(f"the server on port {self.port} is already running")
        if not self._made:
            self._make()
            self._made = True
        end = time.monotonic() + START_TIMEOUT
        chosen_now = not self.port
        while time.monotonic() < end:
            if chosen_now:
                self._let_ports_go()
                self.port = self._hold_port()
            self._run(self._argv(), **self._as_user())
            if wait_until(lambda: not self.alive or self._ready(), START_TIMEOUT, step=0.02) and self.alive:
                return self
            # The port was taken meanwhile, or processes of a killed server still hold its memory.
            self._end(signal.SIGKILL)
            wait_until(lambda: False, 0.2)
        raise RuntimeError(f"{self.binary} did not start; the end of its log:\n{self.log[-2000:]}")

    # ---- what differs

    def _argv(self) -> list[str]:
        raise NotImplementedError

    def _make(self) -> None:
        raise NotImplementedError

    def _admin(self, database: str) -> Any:
        raise NotImplementedError

    def _as_user(self) -> dict[str, Any]:
        return {}

    def _ready(self) -> bool:
        try:
            self._admin("").close()
        except Exception:  # whatever the driver says while the server starts
            return False
        return True

    def _set_up(self, *argv: str, text: str = "") -> None:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            timeout=100,
            cwd=self.folder,
            check=False,
            **self._as_user(),
        )
        if done.returncode:
            raise RuntimeError(f"{argv[0]} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")


class MariaDbServer(SqlServer):
    """A MariaDB server. `options` are further ones of mariadbd, such as "--max-allowed-packet=1M"."""

    scheme = "mysql"

    def __init__(self, binary: str | None = None, *, options: Sequence[str] = ()) -> None:
        super().__init__(binary or find_mariadb())
        self._options = list(options)
        self.socket_path = self.folder / "s"

    def drop_database(self, name: str) -> None:
        """Remove a database and what is in it."""
        self.execute(f"DROP DATABASE `{name}`")

    def _argv(self) -> list[str]:
        return [
            self.binary,
            "--no-defaults",
            *self._root(),
            f"--datadir={self.folder / 'data'}",
            # A starting server removes the temporary files of others from the folder that they share.
            f"--tmpdir={self.folder}",
            f"--socket={self.socket_path}",
            f"--pid-file={self.folder / 'pid'}",
            f"--bind-address={self.host}",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--performance-schema=OFF",
            "--character-set-server=utf8mb4",
            *self._options,
        ]

    def _root(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def _make(self) -> None:
        # The steps of mariadb-install-db, without the parts that take most of its time.
        (self.folder / "data" / "mysql").mkdir(parents=True)
        share = next((p for p in (Path("/usr/share/mysql"), Path("/usr/share/mariadb")) if p.exists()), None)
        if share is None:
            raise RuntimeError("MariaDB's system tables (/usr/share/mysql) are not installed")
        sql = "USE mysql;\n"
        sql += "".join((share / f"{name}.sql").read_text("utf-8") for name in self._system_tables(share))
        sql += (
            "\nINSERT INTO global_priv VALUES ('localhost', 'root', JSON_OBJECT('access', "
            "CAST(-1 AS UNSIGNED), 'plugin', 'mysql_native_password', 'authentication_string', ''));\n"
            "FLUSH PRIVILEGES;\n"
            f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\nCREATE DATABASE netspy;\n"
        )
        self._set_up(
            self.binary,
            "--no-defaults",
            *self._root(),
            f"--datadir={self.folder / 'data'}",
            # A starting server removes the temporary files of others from the folder that they share.
            f"--tmpdir={self.folder}",
            "--bootstrap",
            "--innodb-log-file-size=32M",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--loose-enforce-storage-engine=",
            text=sql,
        )

    def _system_tables(self, share: Path) -> list[str]:
        wanted = ("mysql_system_tables", "mariadb_system_tables")
        return [name for name in wanted if (share / f"{name}.sql").exists()]

    def _admin(self, database: str) -> Any:
        import pymysql

        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database or None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=30,
        )


class PostgresServer(SqlServer):
    """A PostgreSQL server. It refuses to run as root, so then it runs as the system's user `postgres`."""

    scheme = "postgresql"
    polite = signal.SIGINT  # SIGTERM would wait for every client to leave

    def __init__(self, binary: str | None = None, *, options: Sequence[str] = ()) -> None:
        """`options`: further settings, such as "max_connections=5"."""
        super().__init__(binary or find_postgres())
        self._options = list(options)

    def drop_database(self, name: str) -> None:
        """Remove a database and what is in it, whoever is connected to it."""
        self.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def _as_user(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        account = pwd.getpwnam("postgres")
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

    def _argv(self) -> list[str]:
        argv = [self.binary, "-D", str(self.folder / "data"), "-h", self.host, "-p", str(self.port)]
        settings = [
            f"unix_socket_directories={self.folder}",
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=64MB",
            "max_wal_size=256MB",
            "deadlock_timeout=100ms",
            *self._options,
        ]
        return argv + [part for setting in settings for part in ("-c", setting)]

    def _make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD, "utf-8")
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            for path in (self.folder, secret):
                os.chown(path, account.pw_uid, account.pw_gid)
        self._set_up(
            str(Path(self.binary).with_name("initdb")),
            *("-D", str(self.folder / "data"), "-U", USER, f"--pwfile={secret}", "--no-sync"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions"),
        )
        # `start` needs a database to connect to; `postgres` is always there, `netspy` is what URLs name.
        self._set_up(
            self.binary,
            "--single",
            "-D",
            str(self.folder / "data"),
            "postgres",
            text=f"CREATE DATABASE {USER};\n",
        )

    def _admin(self, database: str) -> Any:
        import psycopg

        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database or "postgres",
            autocommit=True,
            connect_timeout=30,
        )
