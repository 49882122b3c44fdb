"""Signals that come when a run is over: after the last line, while the process ends, or in code that goes on."""

from __future__ import annotations

import signal
import time

import pytest
from air_support import SCRIPT_HEAD

from netspy.testing.runner import SUMMARY_MARK, start_script

pytestmark = pytest.mark.slow

HANGS = (
    SCRIPT_HEAD
    + """
import signal, threading


class Hangs(mw.AirSpider):
    __custom_setting__ = {"PROGRESS": "off", "SPIDER_STOP_TIMEOUT": 0.2}

    def start_requests(self):
        yield mw.Request(f"{BASE}/hang")

    def parse(self, request, response):
        pass


"""
)
ENDINGS = {
    "a thread that ends soon": "threading.Thread(target=time.sleep, args=(0.5,)).start()\nHangs().start()\n",
    "slow clean-up": "import atexit\natexit.register(time.sleep, 0.5)\nHangs().start()\n",
    "slow finally": "try:\n    Hangs().start()\nfinally:\n    time.sleep(0.5)\n",
    "nothing": "Hangs().start()\n",
}


@pytest.fixture
def begin(site, tmp_path):
    """Start the source; it waits for a page that never comes."""
    site.route("/hang", "", hang=True)

    def start(source):
        script = start_script(source, env={"SITE": site.url("").rstrip("/")}, cwd=tmp_path)
        try:
            site.wait_hits(1, 60)
        except TimeoutError:
            script.kill(group=True)
            raise AssertionError(script.finish().stderr) from None
        return script

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_signals_after_the_last_line_change_neither_the_exit_code_nor_the_output(begin, ending, number):
    with begin(HANGS + ENDINGS[ending]) as script:
        script.signal(number)
        script.wait_line(SUMMARY_MARK.strip())
        while script.alive:
            script.signal(number)
            time.sleep(0.002)  # no wait for anything: as many presses as there is time for
        result = script.finish(10).check(128 + number)
    assert result.summary["exit_code"] == 128 + number
    assert result.stdout.splitlines()[-1].startswith(SUMMARY_MARK)
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


@pytest.mark.parametrize("gap_s", [0.0, 0.05, 0.2])
def test_one_press_after_the_other_from_the_first_to_the_end_is_a_stop_or_a_forced_one(begin, gap_s):
    with begin(HANGS + ENDINGS["nothing"]) as script:
        script.interrupt()
        script.wait_line("once more to leave at once")
        time.sleep(0.15 + gap_s)  # near the end of the graceful stop, before it and after it
        while script.alive:
            script.interrupt()
            time.sleep(0.001)
        result = script.finish(10)
    assert result.returncode in {130, 137}
    assert result.summary["exit_code"] == result.returncode
    assert result.stdout.splitlines()[-1].startswith(SUMMARY_MARK)
    assert "Traceback" not in result.stderr


def test_what_holds_the_process_up_after_the_last_line_is_left_behind_at_a_further_signal(begin):
    with begin(
        HANGS + "threading.Thread(target=time.sleep, args=(60,)).start()\nHangs().start()\n"
    ) as script:
        script.interrupt()
        script.wait_line(SUMMARY_MARK.strip())
        began = time.monotonic()
        while script.alive and time.monotonic() - began < 20:
            script.interrupt()
            time.sleep(0.05)
        result = script.finish(1).check(130)
    assert time.monotonic() - began < 5
    assert "Traceback" not in result.stderr


def test_a_program_that_goes_on_after_a_stopped_run_has_its_own_handlers_again(begin):
    source = (
        HANGS
        + """
signal.signal(signal.SIGTERM, lambda *_: sys.stdout.write("its own\\n"))
try:
    Hangs().start()
except SystemExit as stop:
    sys.stdout.write(f"caught {stop.code}\\n")
try:
    sys.stdout.write("goes on\\n")
    time.sleep(60)
except KeyboardInterrupt:
    sys.stdout.write("interrupted\\n")
signal.raise_signal(signal.SIGTERM)
sys.exit(9)
"""
    )
    with begin(source) as script:
        script.terminate()
        script.wait_line("goes on")
        script.interrupt()
        result = script.finish(10).check(9)
    assert result.stdout.splitlines()[-4:] == ["caught 143", "goes on", "interrupted", "its own"]


@pytest.mark.parametrize("call", ["run", "start"])
def test_a_run_that_ends_by_itself_leaves_the_programs_handlers_as_they_were(site, tmp_path, call):
    site.route("/hang", "not today")
    source = (
        HANGS
        + f"""
own = lambda *_: None
signal.signal(signal.SIGTERM, own)
Hangs().{call}()
assert signal.getsignal(signal.SIGTERM) is own
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
sys.exit(8)
"""
    )
    with start_script(source, env={"SITE": site.url("").rstrip("/")}, cwd=tmp_path) as script:
        script.finish(30).check(8)
