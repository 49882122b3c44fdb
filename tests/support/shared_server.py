"""One server for all workers of a test run: who comes first starts it, who leaves last stops it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WAIT_S = 300.0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def shared_server(folder: Path, name: str, make: Callable[[], Any]) -> Iterator[str]:
    """The URL of the server. `make` gives a started server with `url` and `close()`.

    The worker that started it is its parent, so at its end it waits for the others that use it.
    """
    lock, state, me = folder / f"{name}.lock", folder / f"{name}.json", os.getpid()
    server = None
    with _locked(lock):
        found = _read(state)
        if not found or not _alive(found["owner"]):
            server = make()
            found = {"owner": me, "url": server.url, "users": []}
        found["users"].append(me)
        state.write_text(json.dumps(found))
    try:
        yield found["url"]
    finally:
        with _locked(lock):
            now = _read(state)
            now["users"].remove(me)
            state.write_text(json.dumps(now))
        if server is not None:
            end = time.monotonic() + WAIT_S
            while True:
                with _locked(lock):
                    others = [pid for pid in _read(state)["users"] if _alive(pid)]
                    if not others or time.monotonic() > end:
                        state.unlink()
                        break
                time.sleep(0.1)
            server.close()
