"""Records of failed requests keep the payload byte for byte, and unreadable ones are still shown."""

from __future__ import annotations

import json

from netspy.policy.failed_record import MAX_ERROR_CHARS, pack_failed, read_failed


def test_the_payload_comes_back_byte_for_byte():
    payload = '{"url":"https://例え.jp/","n":9007199254740993,"f":1.0}'.encode()
    text = pack_failed(
        payload,
        reason="status 500",
        error='said "no"\n',
        attempts=4,
        time=12.3456,
        priority=1.5,
        site="0a0b0c0d",
    )
    assert json.loads(text)["request"]["n"] == 9007199254740993
    found = read_failed(text)
    assert found.payload == payload
    assert (found.reason, found.error, found.attempts, found.time, found.priority, found.site) == (
        "status 500",
        'said "no"\n',
        4,
        12.346,
        1.5,
        "0a0b0c0d",
    )
    assert found.url == "https://例え.jp/"


def test_a_payload_that_nobody_can_read_is_kept_as_text():
    found = read_failed(
        pack_failed(None, reason="unreadable", error="v9", attempts=1, time=0, raw="\x00what")
    )
    assert (found.payload, found.raw, found.url) == (None, "\x00what", "")


def test_error_texts_are_cut():
    text = pack_failed(b"{}", reason="r", error="x" * 10_000, attempts=1, time=0, priority=float("nan"))
    assert len(read_failed(text).error) == MAX_ERROR_CHARS + 1
    assert read_failed(text).priority == 300.0


def test_records_of_other_programs_are_shown_as_they_are():
    for text in (b"\xff\xfe", b"[1]", b'{"url":"u"}', b'{"reason":"x","request":[1]}', b""):
        found = read_failed(text)
        assert found.reason == "unreadable"
        assert found.payload is None
        assert found.raw is not None
