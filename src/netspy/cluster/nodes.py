"""The nodes of a run, as their heartbeats tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class NodeInfo(NamedTuple):
    """One node. `beat_age_s` is by the server's clock; `alive` is False past HEARTBEAT_STALE."""

    id: str
    alive: bool
    beat_age_s: float
    host: str
    pid: int
    version: str
    started: float
    in_flight: int
    unacked: int
    counters: dict[str, int]


class _Report(msgspec.Struct):
    """What `frontier.redis.calls.report_json` writes."""

    host: str = ""
    pid: int = 0
    version: str = ""
    started: float = 0.0
    in_flight: int = 0
    unacked: int = 0
    counters: dict[str, int] = {}


_decode = msgspec.json.Decoder(_Report).decode


def read_nodes(rows: list[Any], now_ms: float, stale_s: float) -> list[NodeInfo]:
    """Nodes from `status.lua`'s rows of (id, last beat, JSON report), oldest beat first."""
    nodes = []
    for at in range(0, len(rows), 3):
        age = (now_ms - float(rows[at + 1])) / 1000
        try:
            report = _decode(rows[at + 2])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            report = _Report()  # another program's, or an older version's
        nodes.append(
            NodeInfo(
                id=_text(rows[at]),
                alive=abs(age) <= stale_s,  # one far in the future is no sign of life either
                beat_age_s=max(0.0, age),
                host=report.host,
                pid=report.pid,
                version=report.version,
                started=report.started,
                in_flight=report.in_flight,
                unacked=report.unacked,
                counters=report.counters,
            )
        )
    return nodes


def sum_counters(nodes: Iterable[NodeInfo], gone: dict[str, int]) -> dict[str, int]:
    """Counters of all nodes together, those that have left included."""
    total = dict(gone)
    for node in nodes:
        for name, value in node.counters.items():
            total[name] = total.get(name, 0) + value
    return total


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
