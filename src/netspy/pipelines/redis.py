"""Rows into a Redis list or stream, for a `netspy consume` or any other consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.errors import ItemError, RowsFailedError
from netspy.messages.envelope import pack_row
from netspy.messages.row import Row
from netspy.pipelines.base import BasePipeline
from netspy.pipelines.errors import UnavailableError
from netspy.policy.run_scope import CLUSTER_SCHEMES
from netspy.redisio import client as clients
from netspy.redisio.errors import error_kind, one_line, unusable
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

STREAM_FIELD = "row"
"""The field of a stream's entries that holds the envelope."""


class RedisPipeline(BasePipeline):
    """Each row is an element of the list (or, with REDIS_ITEMS_TYPE="stream", an entry of the stream) REDIS_ITEMS_KEY,
    or else of `<REDIS_KEY_PREFIX>:items:<table>`, in the Redis of REDIS_URL.

    It is written in its envelope (`netspy.messages.envelope`); an UpdateItem keeps its place in the order. A batch is
    written whole or not at all; it may be there twice when the connection broke in between. What a crash of Redis
    takes depends on its `appendfsync`.
    """

    def __init__(self) -> None:
        self._clients: dict[str, redis.Redis] = {}
        self._keys: dict[str, tuple[str, ...]] = {}

    def where(self) -> str:
        """The server and key, for the run's summary."""
        return f"{hide_password(self.settings.REDIS_URL)} ({self._key('*')})"

    def _key(self, table: str) -> str:
        key = self.settings.REDIS_ITEMS_KEY or f"{self.settings.REDIS_KEY_PREFIX}:items:{table}"
        if self.settings.REDIS_URL.partition("://")[0] in CLUSTER_SCHEMES and "{" not in key:
            key = "{" + key + "}"  # the consumer keeps its notes beside it, in the same slot
        return key

    def _client(self, key: str) -> redis.Redis:
        # In a Redis Cluster a client is tied to the slot of one key.
        if key not in self._clients:
            self._clients[key] = clients.sync_client(self.settings, key=key)
        return self._clients[key]

    def describe(self, table: str, unique_key: tuple[str, ...]) -> None:
        """Keep the key for the envelopes, and see that the server answers and the key is of the right type."""
        self._keys[table] = unique_key
        key = self._key(table)
        try:
            found = self._client(key).type(key)
        except Exception as error:
            raise self._problem(error) from error
        kind = found.decode() if isinstance(found, bytes) else str(found)
        if kind not in {"none", self.settings.REDIS_ITEMS_TYPE}:
            raise ItemError(
                f"Redis key {key!r} is a {kind}, not a {self.settings.REDIS_ITEMS_TYPE}; set REDIS_ITEMS_KEY or REDIS_ITEMS_TYPE"
            )

    def save_items(self, table: str, items: Sequence[dict[str, Any]]) -> None:
        """Append the batch in one step. Raises RowsFailedError for rows that can't travel."""
        self._save(table, items, None)

    def update_items(self, table: str, items: Sequence[dict[str, Any]], update_keys: Sequence[str]) -> None:
        """As `save_items`; who consumes does the update."""
        self._save(table, items, tuple(update_keys))

    def _save(self, table: str, items: Sequence[dict[str, Any]], update_keys: tuple[str, ...] | None) -> None:
        key = self._key(table)
        failed: dict[int, Exception] = {}
        bodies: list[bytes] = []
        for place, item in enumerate(items):
            try:
                bodies.append(pack_row(Row(table, item, None, update_keys, self._keys.get(table, ()))))
            except ItemError as error:
                failed[place] = error
        if bodies:
            try:
                self._append(key, bodies)
            except Exception as error:
                raise self._problem(error) from error
        if failed:
            raise RowsFailedError(failed)

    def _append(self, key: str, bodies: list[bytes]) -> None:
        client = self._client(key)
        if self.settings.REDIS_ITEMS_TYPE == "list":
            client.rpush(key, *bodies)
            return
        with client.pipeline(transaction=True) as several:
            for body in bodies:
                several.xadd(key, {STREAM_FIELD: body})
            several.execute()

    def _problem(self, error: Exception) -> Exception:
        trouble = error_kind(error)
        if trouble == "config":
            return unusable(self.settings.REDIS_URL, error)
        if trouble in {"away", "full"}:
            return UnavailableError(
                f"Redis at {hide_password(self.settings.REDIS_URL)} takes nothing: {one_line(error)}"
            )
        return error

    def close(self) -> None:
        """Disconnect."""
        for client in self._clients.values():
            client.close()
            client.connection_pool.disconnect()
        self._clients.clear()
