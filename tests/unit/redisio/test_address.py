"""REDIS_URL as users write it: every topology, odd passwords, and one clear line for what is wrong."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netspy.errors import ConfigError
from netspy.redisio.address import read_address
from netspy.redisio.location import ServerLocation, WrongLocationError
from netspy.settings import hide_password


def facts(url: str) -> dict[str, object]:
    return {name: value for name, value in read_address(url)._asdict().items() if value}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", {"kind": "plain", "hosts": (("h", 6379),)}),
        ("redis://[::1]:7/3", {"kind": "plain", "hosts": (("::1", 7),), "db": 3}),
        ("redis://h:7?db=4", {"kind": "plain", "hosts": (("h", 7),), "db": 4}),
        ("redis://u:p%40%2Fs@h/1", {"kind": "plain", "hosts": (("h", 6379),), "db": 1, "username": "u", "password": "p@/s"}),
        ("redis://h/0?password=a@b", {"kind": "plain", "hosts": (("h", 6379),), "password": "a@b"}),
        ("rediss://h?ssl_check_hostname=no", {"kind": "plain", "tls": True, "hosts": (("h", 6379),), "options": {"ssl_check_hostname": False}}),
        ("unix:///run/r.sock?db=2", {"kind": "unix", "path": "/run/r.sock", "db": 2}),
        ("unix://u:p@/run/r%20x.sock", {"kind": "unix", "path": "/run/r x.sock", "username": "u", "password": "p"}),
        (
            "redis+sentinel://u:p@a:1,b,c:3/my%2Dname/2?sentinel_password=x%26y",
            {
                "kind": "sentinel", "hosts": (("a", 1), ("b", 26379), ("c", 3)), "service": "my-name", "db": 2,
                "username": "u", "password": "p", "sentinel_password": "x&y",
            },
        ),
        ("rediss+cluster://:p@a:1,b:2", {"kind": "cluster", "tls": True, "hosts": (("a", 1), ("b", 2)), "password": "p"}),
    ],
)  # fmt: skip
def test_every_topology_is_read(url, expected):
    assert facts(url) == expected


@given(password=st.text(min_size=1), scheme=st.sampled_from(["redis", "rediss", "redis+cluster"]))
@example(password="p@ss/w#rd?x:y%25", scheme="redis")
@example(password="/@", scheme="redis")
@example(password="?db=1#", scheme="redis")
@example(password="[::1", scheme="redis+cluster")
def test_any_password_may_be_encoded(password, scheme):
    url = f"{scheme}://u:{quote(password, safe='')}@host:7/0"
    assert (read_address(url).username, read_address(url).password) == ("u", password)


@pytest.mark.parametrize("password", ["p@ss/w#rd", "a?b", "1/2@3", "p@h/1@", "x y\"'\\", "é:ü", "#", "50%"])
@pytest.mark.parametrize(
    "place", ["redis://{}host:7/0", "redis+sentinel://{}a,b:2/name/0", "redis+cluster://{}a,b:2"]
)
def test_a_password_may_be_written_as_it_is(password, place):
    read = read_address(place.format(f"u:{password}@"))
    assert (read.username, read.password) == ("u", password)
    assert password not in hide_password(place.format(f"u:{password}@"))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "is no Redis address"),
        ("http://h", "is no Redis address"),
        ("localhost:6379", "is no Redis address"),
        ("redis://", "names no host"),
        ("redis://a,b/0", "redis+sentinel://"),
        ("redis://h:99999", "no host:port"),
        ("redis://h/x", "no number"),
        ("redis://h?db=x", "whole number"),
        ("redis://h/0#x", "%23"),
        ("redis://u:s3cret@[::1/0", "no host:port"),
        ("redis://u:s3cret@x/y@h:port/0", "%2F"),
        ("redis://h?foo=1", "'foo'"),
        ("rediss://h?ssl_ca_cert=x", "did you mean ssl_ca_certs"),
        ("rediss://h?ssl_ca_certs=/nope", "no such file"),
        ("rediss://h?ssl_cert_reqs=maybe", "required, optional or none"),
        ("redis://h?ssl_ca_certs=x", "rediss://"),
        ("rediss://h?ssl_keyfile=" + quote(__file__), "ssl_certfile"),
        ("redis://h?sentinel_password=s3cret", "isn't known"),
        ("redis://h?socket_timeout=-1", "seconds"),
        ("redis+sentinel://a:1", "sentinel monitor"),
        ("redis+cluster://a/3", "only database 0"),
        ("unix://run/x", "three slashes"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_without_the_password(url, told):
    with pytest.raises(ConfigError) as caught:
        read_address(url)
    text = str(caught.value)
    assert told in text
    assert "REDIS_URL" in text
    assert "\n" not in text
    assert "s3cret" not in text


# -- where the server is


def test_sentinels_take_turns_so_that_one_with_an_old_view_is_not_asked_for_ever():
    place = ServerLocation(read_address("redis+sentinel://a:1,b:2,c:3/x"))
    assert [place.asks()[0].host for _ in range(4)] == [("a", 1), ("b", 2), ("c", 3), ("a", 1)]
    assert place.read(("a", 1), [b"10.0.0.1", b"6379"]) == ("10.0.0.1", 6379)
    assert place.read(("a", 1), None) is None
    assert isinstance(place.nowhere([], [("a", 1)], ""), WrongLocationError)


def test_the_master_of_the_slot_is_found_and_other_nodes_are_remembered():
    place = ServerLocation(read_address("redis+cluster://seed:1"), slot=9000)
    reply = [
        [0, 8191, [b"n1", 1, b"id"], [b"n2", 2, b"id"]],
        [8192, 16383, [b"", 3, b"id"], [None, 4, b"id"]],
    ]
    assert place.read(("seed", 1), reply) == ("seed", 3), "a node without a name is where it was asked"
    assert {ask.host for _ in range(9) for ask in place.asks()} == {("seed", n) for n in (1, 3, 4)} | {
        ("n1", 1),
        ("n2", 2),
    }
    assert place.read(("seed", 1), reply[:1]) is None


def test_a_redirection_is_followed_once_and_ends_older_connections():
    from redis.exceptions import AskError, MovedError, ReadOnlyError, ResponseError

    place = ServerLocation(read_address("redis+cluster://seed:1"), slot=5)
    assert place.moved_on(MovedError("5 n9:7"), ("seed", 1))
    assert (place.generation, place.take_hint(), place.take_hint()) == (1, ("n9", 7), None)
    assert place.moved_on(MovedError("5 :7"), ("seed", 1))
    assert place.take_hint() == ("seed", 7)
    assert place.moved_on(AskError("5 n9:7"), ("seed", 1))
    assert place.take_hint() is None, "half way no server has all keys"
    plain = ServerLocation(read_address("redis://h"))
    assert plain.moved_on(MovedError("5 n9:7"), None) is None
    assert plain.moved_on(ReadOnlyError("You can't write against a read only replica."), None)
    assert plain.moved_on(ResponseError("user_script:1: -READONLY You can't write"), None)
    assert plain.moved_on(ResponseError("WRONGTYPE"), None) is None
    assert plain.generation == 2
