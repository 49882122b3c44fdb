from __future__ import annotations

import pytest

from netspy.messages.request import Request
from support.raw_server import redirect, reply


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_http_10_a_session_over_redirects_and_ports(raw, other, d, host: str) -> None:
    raw.on("/set", reply(headers=["Set-Cookie: sid=1; Path=/"]))
    raw.on("/again", redirect("/show", headers=["Set-Cookie: sid=2; Path=/"]))
    raw.on(
        "/many",
        reply(
            headers=[
                "Set-Cookie: a=1; Expires=Wed, 21 Oct 2037 07:28:00 GMT; Path=/",
                'Set-Cookie: b="x=y"; Path=/',
                "Set-Cookie: c=; Path=/",
                "Set-Cookie: d=4; Max-Age=0; Path=/",
            ]
        ),
    )
    first = await d.fetch(Request(raw.url("/set", host)))
    again = await d.fetch(Request(raw.url("/again", host)))
    many = await d.fetch(Request(raw.url("/many", host)))
    await d.fetch(Request(raw.url("/show", host)))
    await d.fetch(Request(other.url("/", host)))
    assert first.cookies == {"sid": "1"}
    assert again.cookies == {"sid": "2"}
    assert again.history[0].cookies == {"sid": "2"}
    assert many.cookies == {"a": "1", "b": '"x=y"', "c": ""}
    after_redirect, after_many = raw.at("/show")
    assert after_redirect.all("cookie") == ["sid=2"]
    assert after_many.all("cookie") == ['sid=2; a=1; b="x=y"; c=']
    assert other.seen[0].get("cookie") == 'sid=2; a=1; b="x=y"; c='


async def test_cookies_of_the_request_join_the_jars_and_win(raw, d) -> None:
    raw.on("/set", reply(headers=["Set-Cookie: a=jar; Path=/", "Set-Cookie: b=jar; Path=/"]))
    await d.fetch(Request(raw.url("/set")))
    await d.fetch(Request(raw.url("/one"), cookies={"b": "own", "c": 3, "d": None}))
    await d.fetch(Request(raw.url("/two"), headers={"cookie": "b=head; x=1"}))
    await d.fetch(Request(raw.url("/three")))
    assert [seen.all("cookie") for seen in raw.seen[1:]] == [
        ["a=jar; b=own; c=3"],
        ["a=jar; b=head; x=1"],
        ["a=jar; b=jar"],
    ]


async def test_a_redirects_new_value_replaces_the_requests_old_one(raw, d) -> None:
    raw.on("/", redirect("/next", headers=["Set-Cookie: token=new; Path=/"]))
    await d.fetch(Request(raw.url("/"), cookies={"token": "old", "other": "1"}))
    assert raw.at("/next")[0].get("cookie") == "token=new; other=1"


async def test_another_sites_cookie_does_not_touch_the_requests(raw, other, d) -> None:
    other.on("/", reply(headers=["Set-Cookie: a=1; Domain=127.0.0.1", "Set-Cookie: b=2; Domain=com"]))
    await d.fetch(Request(other.url("/", host="localhost")))
    await d.fetch(Request(raw.url("/")))
    assert raw.seen[0].get("cookie") is None


async def test_cookies_disabled(raw, make) -> None:
    d = make(COOKIES_ENABLED=False)
    raw.on("/", redirect("/next", headers=["Set-Cookie: a=1; Path=/"]))
    response = await d.fetch(Request(raw.url("/"), cookies={"own": "1"}))
    await d.fetch(Request(raw.url("/later")))
    assert response.cookies == {"a": "1"}
    assert raw.at("/next")[0].get("cookie") == "own=1"
    assert raw.at("/later")[0].get("cookie") is None


async def test_two_downloaders_share_nothing(raw, make) -> None:
    raw.on("/set", reply(headers=["Set-Cookie: a=1; Path=/"]))
    await make().fetch(Request(raw.url("/set")))
    await make().fetch(Request(raw.url("/")))
    assert raw.at("/")[0].get("cookie") is None


async def test_a_cookie_can_not_smuggle_a_header(raw, d) -> None:
    from netspy.errors import RequestError

    with pytest.raises(RequestError):
        await d.fetch(Request(raw.url("/"), cookies={"a": "1\r\nX-Injected: 1"}))
    assert raw.seen == []
