"""The progress display: a live panel on a terminal, plain lines in the log otherwise.

The panel never hides the cursor, so there is nothing to restore: whatever ends the process, even kill -9,
leaves a usable terminal.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from netspy.observe import log
from netspy.observe.progress import Snapshot, clock_time, duration, figures, line, rate_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from netspy.settings import Settings

Clock = Callable[[], float]

REFRESH_S = 0.25
CLOSE_S = 1.0
"""How long a close waits for a redraw that is going on."""

MAX_WAITING = 10_000
"""Pieces of text held for the next redraw; while the terminal takes none, more are counted and left out."""


class Progress(Protocol):
    """Where snapshots are shown."""

    def update(self, snapshot: Snapshot) -> None:
        """Show `snapshot`. Cheap, from any thread, any number of times per second; never raises."""

    def close(self) -> None:
        """Show the last snapshot and give the terminal back. Safe to call twice."""


class NoProgress:
    """Shows nothing."""

    def update(self, snapshot: Snapshot) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing to give back."""


class LineProgress:
    """One plain line per `interval_s` through the log: on stderr and in LOG_FILE, without colours."""

    def __init__(self, interval_s: float, *, clock: Clock = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._due = clock() + interval_s
        self._said = ""
        self._last: Snapshot | None = None
        self._logger = log.get_logger("progress")

    def update(self, snapshot: Snapshot) -> None:
        """Say the line when the interval is over."""
        self._last = snapshot
        if self._clock() >= self._due:
            self._due = self._clock() + self._interval_s
            self._say(snapshot)

    def close(self) -> None:
        """Say where it ended, unless that has just been said."""
        if self._last is not None:
            self._say(self._last)
            self._last = None

    def _say(self, snapshot: Snapshot) -> None:
        text = line(snapshot)
        if text != self._said:
            self._said = text
            self._logger.info("{}", text)


def make_progress(
    settings: Settings, stream: TextIO | None = None, *, clock: Clock = time.monotonic
) -> Progress:
    """The display that PROGRESS asks for on `stream` (default: stderr).

    A panel needs a terminal; elsewhere `panel` and `auto` are lines, METRICS_LOG_INTERVAL apart (0 = none).
    """
    stream = sys.stderr if stream is None else stream
    if settings.PROGRESS == "off":
        return NoProgress()
    if settings.PROGRESS in {"auto", "panel"} and log.is_terminal(stream):
        return PanelProgress(stream, color=settings.LOG_COLOR)
    if settings.METRICS_LOG_INTERVAL <= 0:
        return NoProgress()
    return LineProgress(settings.METRICS_LOG_INTERVAL, clock=clock)


class PanelProgress:
    """A panel at the bottom of the terminal, redrawn four times a second; log lines and prints go above it.

    Lines are collected between two redraws, so a chatty spider doesn't cost a redraw per line, and a terminal
    that stands still (Ctrl-S) doesn't stop the crawl. A drawing error ends the panel, never the crawl.
    """

    def __init__(self, stream: TextIO, *, color: bool = True) -> None:
        from rich.console import Console
        from rich.live import Live

        self._stream = stream
        self._console = Console(
            file=stream, force_terminal=True, no_color=None if color else True, highlight=False, emoji=False
        )
        self._snapshot: Snapshot | None = None
        self._waiting: list[str] = []
        self._left_out = 0
        self._lock = threading.Lock()  # guards _waiting, _left_out and _closed; never held while drawing
        self._stop = threading.Event()
        self._closed = False
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()
        self._console.show_cursor(True)
        log.redirect(self._above)
        self._taken = [_Above(name, self._above) for name in ("stdout", "stderr") if _same_screen(name)]
        self._thread = threading.Thread(target=self._redraw_until_stopped, name="netspy-panel", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def update(self, snapshot: Snapshot) -> None:
        """Take the snapshot; the next redraw shows it."""
        self._snapshot = snapshot

    def close(self) -> None:
        """Draw once more, leave the last panel on the screen and give stdout, stderr and the log back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)
        # A thread that is still there hangs in a write to a terminal that stands still: so would we.
        stuck = self._thread.is_alive() and threading.current_thread() is not self._thread
        if not stuck:
            for taken in self._taken:
                taken.end_line()
            with suppress(Exception):  # the terminal is gone or can't take it
                self._draw(last=True)
            with suppress(Exception):
                self._live.stop()
        log.redirect(None)
        for taken in self._taken:
            taken.give_back()
        if not stuck:
            self._write_plainly()  # what came in between, or what could not be drawn
        atexit.unregister(self.close)

    def _above(self, text: str) -> None:
        with self._lock:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(text)
            else:
                self._left_out += 1

    def _redraw_until_stopped(self) -> None:
        while not self._stop.wait(REFRESH_S):
            try:
                self._draw()
            except Exception:
                self.close()

    def _draw(self, *, last: bool = False) -> None:
        from rich.console import Group
        from rich.text import Text

        text = self._taken_text()
        snapshot = self._snapshot
        with self._console:  # one write for all of it
            if text:
                self._console.print(_Raw(text), crop=False, end="")
            if snapshot is not None:
                panel = render(snapshot, height=self._console.height - 1)
                # The cursor waits on an empty line below: what the terminal echoes (^C) spoils nothing there.
                self._live.update(panel if last else Group(panel, Text("")), refresh=True)

    def _taken_text(self) -> str:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            left_out, self._left_out = self._left_out, 0
        text = "".join(waiting)
        if left_out:
            text += f"… {left_out:,} lines are not shown here: the terminal was too slow\n"
        return text

    def _write_plainly(self) -> None:
        text = self._taken_text()
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class _Raw:
    """Text that goes to the terminal as it is: lines of the log are coloured already."""

    def __init__(self, text: str) -> None:
        self._text = text if text.endswith("\n") else text + "\n"

    def __rich_console__(self, console: Console, options: Any) -> Any:
        from rich.segment import Segment

        yield Segment(self._text)


class _Above:
    """Stands in for sys.stdout or sys.stderr while the panel is on: whole lines are printed above it."""

    def __init__(self, name: str, above: Callable[[str], None]) -> None:
        self._name = name
        self._above = above
        self._original: TextIO = getattr(sys, name)
        self._part = ""
        self._lock = threading.Lock()
        setattr(sys, name, self)

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, self._part = (self._part + text).rpartition("\n")
        if newline:
            self._above(whole + newline)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Lines go out with the next redraw."""

    def end_line(self) -> None:
        with self._lock:
            part, self._part = self._part, ""
        if part:
            self._above(part + "\n")

    def give_back(self) -> None:
        if getattr(sys, self._name) is self:
            setattr(sys, self._name, self._original)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._original, attribute)


def _same_screen(name: str) -> bool:
    """Whether that standard stream writes to a terminal; one that goes to a file or pipe is left alone."""
    return log.is_terminal(getattr(sys, name))


def render(snapshot: Snapshot, *, height: int = 25) -> RenderableType:
    """The panel: the cluster's line, a bar, and, with several nodes, their table cut to `height` rows."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    s = snapshot
    facts = Text(overflow="fold")
    for word, value in figures(s):
        style = "bold red" if word == "failed" and s.failed else "bold"
        facts.append(f"{word} ", "dim").append(value, style).append("  ")
    # Rate and time left have their place beside the bar: they come, go and change their width, and the line of
    # figures must not be broken anew each time.
    pace = Text.assemble((rate_text(s.rate), "bold cyan"))
    if s.eta_s is not None and s.left:
        pace.append("  ETA ", "dim").append(clock_time(s.eta_s), "bold")
    known = s.done + s.failed + s.left
    over = s.done + s.failed
    if known:
        pace.append(f"  {100 * over // known} %")
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(ProgressBar(total=known or 1, completed=over), pace)
    parts: list[RenderableType] = [facts, bar]
    if s.batch:
        parts.insert(0, Text(s.batch, "bold cyan", no_wrap=True, overflow="ellipsis"))
    if len(s.nodes) > 1:
        parts.append(_node_table(s, most=max(1, height - (10 if s.batch else 9))))
    title = Text.assemble((s.spider, "bold"), f" {s.run_id}" if s.run_id else "", no_wrap=True)
    state = s.finishing or s.state
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=Text(f"{duration(s.elapsed_s)}  {state}", no_wrap=True, overflow="ellipsis"),
        subtitle_align="left",
        border_style="green" if state in {"crawling", "seeding", "finishing", "finished"} else "yellow",
        box=box.ROUNDED,
    )


def _node_table(snapshot: Snapshot, *, most: int) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("node", no_wrap=True, overflow="ellipsis")
    for heading in ("done", "in flight", "rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("seen", justify="right", no_wrap=True)
    # The dead first: they are what one looks for when the table is cut.
    nodes = sorted(snapshot.nodes, key=lambda node: node.alive)
    for node in nodes[:most]:
        place = f" {node.host}:{node.pid}" if node.host else ""
        seen = f"{duration(node.age_s)} ago" if node.alive else f"dead, {duration(node.age_s)}"
        table.add_row(
            f"{node.name}{place}",
            f"{node.done:,}",
            f"{node.in_flight:,}",
            rate_text(node.rate),
            seen,
            style="" if node.alive else "red",
        )
    if len(nodes) > most:
        table.add_row(f"… {len(nodes) - most} more", "", "", "", "", style="dim")
    return table
