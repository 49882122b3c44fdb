import io

import pytest

from netspy.observe import log
from netspy.observe.alerts import Alerts
from netspy.settings import Settings


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def stream():
    stream = io.StringIO()
    log.setup(Settings(), spider="News", stream=stream)
    yield stream
    log.close()


def test_the_same_kind_goes_out_once_per_interval_and_tells_what_was_left_out(stream):
    sent, clock = [], Clock()
    alerts = Alerts(lambda kind, message: sent.append((kind, message)), 300, clock)
    assert alerts.raise_alert("fill", "81 %")
    assert not alerts.raise_alert("fill", "82 %")
    assert not alerts.raise_alert("fill", "83 %")
    assert alerts.raise_alert("stall", "no page for 600 s")
    clock.now = 300
    assert alerts.raise_alert("fill", "84 %")
    assert sent == [
        ("fill", "81 %"),
        ("stall", "no page for 600 s"),
        ("fill", "84 % (2 more of this kind since the last alert)"),
    ]
    assert stream.getvalue().count("WARNING") == 3


def test_a_broken_channel_does_not_stop_the_crawl(stream):
    def send(kind, message):
        raise OSError("no route to redis://:s3cret@h/0")

    assert Alerts(send, 0).raise_alert("fill", "81 %")
    assert (
        "sending alert fill failed (test_alerts.py:44): OSError: no route to redis://:***@h/0"
        in stream.getvalue()
    )


def test_without_a_channel_the_log_has_it(stream):
    Alerts().raise_alert("fill", "81 %")
    assert "WARNING  alert: fill: 81 %" in stream.getvalue()
