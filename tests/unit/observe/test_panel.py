import contextlib
import errno
import io
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from netspy.observe import log
from netspy.observe.panel import LineProgress, NoProgress, PanelProgress, make_progress, render
from netspy.observe.progress import NodeView, Snapshot
from netspy.settings import Settings

SHOT = Snapshot(spider="News", run_id="r7", elapsed_s=12, done=340, queued=60, failed=2, rate=28.1, eta_s=43)
NODES = (
    NodeView(name="n1", host="box", pid=11, done=200, in_flight=16, rate=20.0),
    NodeView(name="n2", host="box", pid=12, done=140, alive=False, age_s=17),
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Screen:
    """A pseudo terminal; what was written to it is collected by a thread."""

    def __init__(self):
        self.main, side = pty.openpty()
        self.stream = os.fdopen(side, "w", encoding="utf-8")
        self.text = ""
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.main, 65536)
            except OSError:  # the other side is closed
                return
            if not data:
                return
            with self.changed:
                self.text += data.decode("utf-8", "replace")
                self.changed.notify_all()

    def wait_for(self, pattern, seconds=30):
        with self.changed:
            assert self.changed.wait_for(lambda: re.search(pattern, self.text, re.S), seconds), self.text

    def close(self):
        self.stream.close()
        self.thread.join(30)
        os.close(self.main)


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    yield screen
    log.close()
    screen.close()


def shown(snapshot, *, width=80, height=25):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(render(snapshot, height=height))
    return console.file.getvalue()


def test_the_panel_shows_the_cluster_and_each_node():
    text = shown(Snapshot(**{f: getattr(SHOT, f) for f in SHOT.__slots__} | {"nodes": NODES, "delayed": 3}))
    for piece in (
        "News r7",
        "done 340",
        "queued 60",
        "in flight 0",
        "delayed 3",
        "failed 2",
        "28.1/s",
        "ETA 0:43",
    ):
        assert piece in text
    assert re.search(r"n1 box:11\s+200\s+16\s+20\.0/s", text)
    assert re.search(r"n2 box:12\s+140\s+0\s+0\.0/s\s+dead, 17 s", text)
    assert "84 %" in text
    assert text.index("n2 box") < text.index("n1 box")


def test_one_node_needs_no_table():
    assert "node" not in shown(Snapshot(spider="News", nodes=NODES[:1]))


@pytest.mark.parametrize(("width", "height"), [(40, 12), (20, 5), (300, 60)])
def test_a_small_terminal_is_not_overrun(width, height):
    nodes = tuple(NodeView(name=f"node {n}", host="a-rather-long-host-name", pid=n) for n in range(100))
    text = shown(Snapshot(spider="爬虫" * 30, nodes=nodes, state="x" * 200), width=width, height=height)
    assert len(text.splitlines()) <= max(height, 12) + 1
    assert re.search(r"… \d+ m", text)


def test_square_brackets_of_a_spider_are_shown_and_not_taken_for_markup():
    assert "[red]News[/]" in shown(Snapshot(spider="[red]News[/]", state="[bold]"))


def test_log_lines_and_prints_appear_above_and_the_cursor_is_never_hidden(screen, monkeypatch):
    monkeypatch.setattr(sys, "stdout", screen.stream)
    log.setup(Settings(), spider="News", stream=screen.stream)
    progress = make_progress(Settings(), screen.stream)
    assert isinstance(progress, PanelProgress)
    progress.update(SHOT)
    screen.wait_for("done .*340")
    log.get_logger("News").info("a line of the log")
    print("an item", end=" ")
    print("on stdout")
    screen.wait_for("a line of the log.*an item on stdout.*done")
    print("no newline", end="")
    progress.close()
    assert sys.stdout is screen.stream
    log.get_logger("News").info("after the panel")
    screen.wait_for("no newline\r\n.*done.*╯.*after the panel")
    hidden, visible = screen.text.rfind("\x1b[?25l"), screen.text.rfind("\x1b[?25h")
    assert visible > hidden
    assert screen.text.find("\x1b[?25h") < screen.text.find("News")


def test_closing_twice_and_updating_afterwards_is_harmless(screen):
    progress = PanelProgress(screen.stream)
    progress.close()
    progress.update(SHOT)
    progress.close()
    assert not any(thread.name == "netspy-panel" for thread in threading.enumerate())


def test_stdout_that_goes_to_a_file_is_left_alone(screen, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    progress = PanelProgress(screen.stream)
    assert sys.stdout is out
    print("for the file")
    progress.close()
    assert out.getvalue() == "for the file\n"


def test_a_terminal_that_goes_away_does_not_stop_the_crawl(screen):
    class Gone(io.StringIO):
        def isatty(self):
            return True

        def write(self, text):
            if self.broken:
                raise OSError(errno.EIO, "terminal gone")
            return super().write(text)

        broken = False

    stream = Gone()
    progress = PanelProgress(stream)
    stream.broken = True
    progress.update(SHOT)
    progress._thread.join(30)
    assert not progress._thread.is_alive()
    progress.update(SHOT)
    progress.close()
    assert log._LOG.screen.redirected is None


def test_a_terminal_that_stands_still_does_not_eat_the_memory(screen):
    progress = PanelProgress(screen.stream)
    try:
        progress._stop.set()
        progress._thread.join(30)
        for n in range(10_500):
            progress._above(f"line {n}\n")
        assert len(progress._waiting) == 10_000
    finally:
        progress.close()
    screen.wait_for("line 9999\r\n… 500 lines are not shown here")


@pytest.mark.parametrize(
    "end", ["raise KeyboardInterrupt", "raise ValueError('x')", "os.kill(os.getpid(), 9)"]
)
def test_the_terminal_is_usable_however_the_process_ends(screen, end):
    code = textwrap.dedent(f"""
        import os, sys
        from netspy.observe.panel import make_progress
        from netspy.observe.progress import Snapshot
        from netspy.settings import Settings
        progress = make_progress(Settings())
        progress.update(Snapshot(spider="News"))
        sys.stdin.readline()
        {end}
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=screen.stream, stderr=screen.stream
    )
    with process:
        screen.wait_for("News.*╯")
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(30) != 0
    if "kill" not in end:
        screen.wait_for(end.partition(" ")[2].partition("(")[0])
    assert screen.text.rfind("\x1b[?25h") > screen.text.rfind("\x1b[?25l")


@pytest.mark.parametrize(
    ("mode", "interval", "on_terminal", "kind"),
    [
        ("auto", 10.0, True, PanelProgress),
        ("auto", 10.0, False, LineProgress),
        ("panel", 10.0, False, LineProgress),
        ("lines", 10.0, True, LineProgress),
        ("lines", 0.0, True, NoProgress),
        ("auto", 0.0, True, PanelProgress),
        ("off", 10.0, True, NoProgress),
    ],
)
def test_which_display(screen, mode, interval, on_terminal, kind):
    progress = make_progress(
        Settings(PROGRESS=mode, METRICS_LOG_INTERVAL=interval),
        screen.stream if on_terminal else io.StringIO(),
    )
    with contextlib.closing(progress):
        assert type(progress) is kind


def test_a_dumb_terminal_gets_lines(screen, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress(Settings(), screen.stream)) is LineProgress


def test_lines_come_once_per_interval_and_at_the_end_without_colours():
    stream, clock = io.StringIO(), Clock()
    log.setup(Settings(), spider="News", stream=stream)
    try:
        progress = LineProgress(10.0, clock=clock)
        for second in range(25):
            clock.now = second
            progress.update(Snapshot(spider="News", done=second))
        progress.close()
        progress.close()
    finally:
        log.close()
    assert re.findall(r"progress: .*?done (\d+) ", stream.getvalue()) == ["10", "20", "24"]
    assert "\x1b" not in stream.getvalue()


def test_an_update_costs_the_crawl_next_to_nothing(screen):
    progress = PanelProgress(screen.stream)
    took = []
    for _ in range(10):  # the quickest: the machine has others to serve
        started = time.thread_time()
        for _ in range(1000):
            progress.update(SHOT)
        took.append(time.thread_time() - started)
    progress.close()
    assert min(took) < 0.05
