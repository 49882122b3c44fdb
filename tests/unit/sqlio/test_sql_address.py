"""Database URLs as people write them, and what they must not give away."""

import pytest

from netspy.errors import ConfigError
from netspy.settings import Settings
from netspy.sqlio.address import mysql_address, postgres_address, read_url


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "user", "password", "database"),
    [
        ("mysql://me:secret@db/shop", "mysql", (("db", 3306),), "me", "secret", "shop"),
        ("mysql+pymysql://me@db:3307/shop", "mysql", (("db", 3307),), "me", "", "shop"),
        ("mariadb://db/shop", "mysql", (("db", 3306),), "", "", "shop"),
        ("postgresql://me:s@[::1]:5433/shop", "postgresql", (("::1", 5433),), "me", "s", "shop"),
        ("postgres://a:1,b:2/shop", "postgresql", (("a", 1), ("b", 2)), "", "", "shop"),
        ("sqlite:///rel/file.db", "sqlite", (), "", "", "rel/file.db"),
        ("sqlite:////abs/file 1%20.db", "sqlite", (), "", "", "/abs/file 1%20.db"),
    ],
)
def test_every_scheme_is_read(url, kind, hosts, user, password, database):
    found = read_url(url)
    assert (found.kind, found.hosts, found.user, found.password, found.database) == (
        kind,
        hosts,
        user,
        password,
        database,
    )


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert read_url("sqlite:///~/tasks.db").database == "/home/me/tasks.db"
    assert read_url("sqlite:///a~/tasks.db").database == "a~/tasks.db"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("p@ss/w#rd?x:1", "p@ss/w#rd?x:1"),
        ("p%40ss%2Fw%23rd%3Fx%3A1", "p@ss/w#rd?x:1"),
        ("a%2541b", "a%41b"),  # decoded once, not twice
        ("100%", "100%"),
        ("päß词", "päß词"),
        (" x ", " x "),
    ],
)
def test_a_password_is_decoded_once_whatever_it_contains(written, meant):
    for scheme in ("mysql", "postgresql"):
        found = read_url(f"{scheme}://me:{written}@db.example:99/shop")
        assert (found.password, found.user, found.hosts) == (meant, "me", (("db.example", 99),))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("oracle://me:secret@db/x", "no database that netspy knows"),
        ("mysql+mysqldb://me:secret@db/x", "netspy uses PyMySQL, write mysql://"),
        ("me:secret@db/x", "is no URL"),
        ("mysql://me:secret@db", "names no database"),
        ("mysql://me:secret@/x", "names no host"),
        ("mysql://me:secret@db:70000/x", "a port lies between"),
        ("mysql://me:secret@a,b/x", "several hosts"),
        ("mysql://me:secret@db/x?charset=latin1", "utf8mb4"),
        ("postgresql://me:secret@db/x?ssl_mode=require", "did you mean sslmode?"),
        ("sqlite://file.db", "sqlite:///file.db"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///x.db?password=secret", "takes no options"),
    ],
)
def test_a_wrong_url_is_refused_with_the_way_out_and_without_its_password(url, why):
    with pytest.raises(ConfigError, match=why) as caught:
        read_url(url, origin="SQL_URL")
    assert "SQL_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_settings_name_a_server_or_a_socket_and_the_password_is_not_printed():
    settings = Settings(
        MYSQL_PASSWORD="s:e@c/r", MYSQL_HOST="/run/mysqld/mysqld.sock", POSTGRES_PASSWORD="x%41"
    )
    mysql, postgres = mysql_address(settings), postgres_address(settings)
    assert (mysql.password, mysql.options["unix_socket"]) == ("s:e@c/r", "/run/mysqld/mysqld.sock")
    assert (postgres.password, postgres.hosts) == ("x%41", (("localhost", 5432),))
    assert "s:e@c/r" not in f"{mysql!r} {mysql.shown}"
    with pytest.raises(ConfigError, match="MYSQL_DB is empty"):
        mysql_address(Settings(MYSQL_DB=""))
