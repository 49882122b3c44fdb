"""One server for all workers of a test run: who comes first starts it, and stops it when the whole run is over."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def shared_server(folder: Path, name: str, make: Callable[[], Any]) -> str:
    """The URL of the server. `make` gives a started server with `url` and `close()`.

    It ends with the process of the worker that started it: xdist lets these live until all workers are done.
    """
    state = folder / f"{name}.json"
    with _locked(folder / f"{name}.lock"):
        found = json.loads(state.read_text()) if state.exists() else {}
        if not found or not _alive(found["owner"]):
            server = make()
            atexit.register(server.close)
            found = {"owner": os.getpid(), "url": server.url}
            state.write_text(json.dumps(found))
    return found["url"]
