"""Stop the embedded Redis of every data folder in or below the folders named."""
# ruff: noqa: INP001 - a script, no part of a package

from __future__ import annotations

import sys
from pathlib import Path

from netspy.redisio.embedded.server import EmbeddedRedis

for top in map(Path, sys.argv[1:]):
    for note in top.rglob("server.json"):
        EmbeddedRedis(note.parent).stop()
