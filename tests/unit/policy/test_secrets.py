from __future__ import annotations

import pytest

from netspy.policy.secrets import mask


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"Authorization": "Bearer x", "Accept": "text/html"}, {"Authorization": "***", "Accept": "text/html"}),
        ({"headers": [("COOKIE", "a=b"), ["X-Api-Key", "k"], ("A", "b")]}, {"headers": [["COOKIE", "***"], ["X-Api-Key", "***"], ["A", "b"]]}),
        ({"headers": ["bare", ("Proxy-Authorization", "x")]}, {"headers": ["***", ["Proxy-Authorization", "***"]]}),
        ({"cookies": {"sid": "x", "lang": "en"}}, {"cookies": {"sid": "***", "lang": "***"}}),
        ({"cookies": "sid=x"}, {"cookies": "***"}),
        ({"auth": ["me", "x"]}, {"auth": "***"}),
        ({"auth": None, "token": ""}, {"auth": None, "token": ""}),
        ({"proxy": "http://u:x@proxy:1"}, {"proxy": "http://u:***@proxy:1"}),
        ({"proxies": {"all": "socks5://u:x@proxy:1"}}, {"proxies": {"all": "socks5://u:***@proxy:1"}}),
        ({"cert": ("c.pem", "k.pem", "x")}, {"cert": ["c.pem", "k.pem", "***"]}),
        ({"cert": "c.pem"}, {"cert": "c.pem"}),
        ({"data": {"user": "me", "Password": "x", "deep": [{"api_key": "x"}]}}, {"data": {"user": "me", "Password": "***", "deep": [{"api_key": "***"}]}}),
        ({"data": "user=me&password=x&page=2"}, {"data": "user=me&password=***&page=2"}),
        ({"url": "https://a.example/?access_token=x&page=2"}, {"url": "https://a.example/?access_token=***&page=2"}),
        ({"url": "https://a.example/author?page=2", "n": 3, "b": b"x"}, {"url": "https://a.example/author?page=2", "n": 3, "b": b"x"}),
        ({"author": "Ann", "authors": ["Ann"], "tokens": 3}, {"author": "Ann", "authors": ["Ann"], "tokens": "***"}),
    ],
)  # fmt: skip
def test_secrets_are_masked_by_their_names_and_the_rest_stays(given: dict, shown: dict) -> None:
    assert mask(given) == shown


def test_what_is_given_is_not_changed() -> None:
    given = {"cookies": {"sid": "x"}, "headers": [("Cookie", "x")]}
    mask(given)
    assert given == {"cookies": {"sid": "x"}, "headers": [("Cookie", "x")]}
