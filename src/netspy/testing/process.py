"""A local site as a process of its own: where it listens, told through a file; until when it runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from netspy.testing.site import LocalSite


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `serve_until_told` reads."""
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--ready-file", type=Path, help='written once the port is open: {"url": …, "pid": …}')
    parser.add_argument(
        "--until-stdin-closes",
        action="store_true",
        help="also stop when standard input ends (the parent is gone)",
    )


def serve_until_told(site: LocalSite, options: argparse.Namespace, *, path: str = "/") -> int:
    """Run the site until SIGINT, SIGTERM or, with --until-stdin-closes, the end of stdin."""
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: told.set())
    try:
        site.start()
    except OSError as error:
        sys.stderr.write(
            f"port {options.port} can't be opened: {error.strerror or error}; choose another --port\n"
        )
        return 1
    try:
        url = site.url(path)
        if options.ready_file:
            # Renamed into place, so that a reader never finds half of it.
            partial = options.ready_file.with_name(options.ready_file.name + ".part")
            partial.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
            partial.replace(options.ready_file)
        sys.stdout.write(f"serving {url}\n")
        sys.stdout.flush()
        if options.until_stdin_closes:
            threading.Thread(target=_watch_stdin, args=(told,), daemon=True).start()
        told.wait()
    finally:
        site.stop()
    return 0


def _watch_stdin(told: threading.Event) -> None:
    # os.read, not sys.stdin: a daemon thread inside a buffered read would break the interpreter's exit.
    while os.read(0, 4096):
        pass
    told.set()
