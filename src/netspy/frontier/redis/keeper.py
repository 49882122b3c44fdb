"""The Redis side of the lease keeper: blocking calls on a connection of its own, from the keeper's thread.

Each call is tried at most twice (a connection may merely have been cut) and then raises
StoreUnavailableError: the keeper's rhythm is its retry.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, StoreLostError, StoreUnavailableError
from netspy.frontier.redis import calls
from netspy.frontier.redis.entry_format import base36, held_mark
from netspy.frontier.redis.liveness import ProcessIdentity, is_gone, this_process
from netspy.frontier.redis.membership import Member, NodeCall, NotRegisteredError, WentBackError
from netspy.messages.entry import BeatReply, BeatReport, Lease, Reclaimed
from netspy.redisio import client as clients
from netspy.redisio.errors import error_kind, one_line, unusable
from netspy.redisio.scripts import Call, run_sync
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netspy.frontier.redis.calls import Calls
    from netspy.frontier.redis.membership import Shared

LEASES_PER_CALL = 1000
LIFETIMES_EVERY_S = 60.0


def gone_nodes(ids: Sequence[bytes], records: Sequence[bytes | None], mine: ProcessIdentity) -> set[str]:
    """Those of these nodes that surely live no more, seen from the process `mine`."""
    return {
        name.decode("utf-8", "surrogateescape")
        for name, record in zip(ids, records, strict=True)
        if is_gone(record, mine)
    }


class RedisKeeper:
    """See `contract.Keeper`."""

    def __init__(self, made: Calls, shared: Shared) -> None:
        """Made by `RedisFrontier.keeper()`."""
        self._calls = made
        self._shared = shared
        self._settings = made.settings
        self.taken_over = 0
        self._sweeps: dict[str, tuple[bytes, bool]] = {}
        self._gone: set[str] = set()  # found when this node joined
        self._looked_as = ""
        self._master_asked_again = float("-inf")
        self._lifetimes_at = float("-inf")
        self._reporting_as = ""
        self._counted: dict[str, int] = {}
        self._counted_before: dict[str, int] = {}
        self._client = clients.sync_client(made.settings, key=made.keys.meta, hello=self._hello)

    def _hello(self, connection: Any) -> None:
        from redis.exceptions import ResponseError

        connection.send_command("INFO", "server")
        try:
            info = connection.read_response()
        except ResponseError:
            info = b""
        run_id = calls.run_id_of(info)
        connection.send_command("EVAL", calls.script("hello").text, 1, self._calls.keys.meta, run_id)
        connection.read_response()

    def _run(self, call: Call | NodeCall, member: Member | None = None) -> list[Any]:
        member = member or self._shared.member
        while True:
            sent = self._shared.sent(call, member)
            try:
                return self._answer(sent)
            except WentBackError as back:
                self._shared.went_back(sent, member, back.last)

    def _answer(self, sent: Call) -> list[Any]:
        reply: list[Any] = self._ask(
            lambda: calls.check_reply(run_sync(self._client, sent), self._calls.keys.ns)
        )
        return reply

    def _ask(self, question: Callable[[], Any]) -> Any:
        for last in (False, True):
            try:
                return question()
            except (NotRegisteredError, StoreLostError, WentBackError):
                raise
            except Exception as error:
                trouble = error_kind(error)
                if trouble == "away" and not last:
                    continue
                if trouble == "config":
                    raise unusable(self._settings.REDIS_URL, error) from None
                if trouble == "type":
                    raise ConfigError(f"Redis key {one_line(error)}") from None
                if trouble is None:
                    raise
                raise StoreUnavailableError(
                    f"Redis at {hide_password(self._settings.REDIS_URL)} did not answer the keeper ({one_line(error)})"
                ) from None
        raise AssertionError

    def _gone_from_here(self) -> set[str]:
        """Nodes of this machine whose process is gone: their work needs no wait for a stale heartbeat."""
        mine = this_process()
        if mine is None:
            return set()
        keys = self._calls.keys
        ids: list[bytes] = self._ask(lambda: self._client.zrange(keys.beats, 0, -1))
        if not ids:
            return set()
        records: list[bytes | None] = self._ask(lambda: self._client.hmget(keys.nodes, ids))
        return gone_nodes(ids, records, mine)

    def beat(self, report: BeatReport) -> BeatReply:
        """See the contract. Raises StoreUnavailableError."""
        now = self._shared.monotonic()
        every_s = min(LIFETIMES_EVERY_S, self._settings.RUN_TTL / 4)
        lifetimes = now - self._lifetimes_at >= every_s
        member = self._shared.member
        if member.node != self._reporting_as:
            # The record under the former id was added to the run's totals when it was removed.
            self._counted_before = self._counted if self._reporting_as else {}
            self._reporting_as = member.node
        before = self._counted_before
        counters = {name: value - before.get(name, 0) for name, value in report.counters.items()}
        info = calls.report_json(report._replace(counters=counters), self._shared.started)
        try:
            reply = self._run(self._calls.beat(info, lifetimes=lifetimes), member)
        except NotRegisteredError:
            return BeatReply(known=False, sweeping=False, stale_nodes=[], intact=True, live_nodes=0)
        except StoreUnavailableError:
            raise
        except StoreLostError:
            return BeatReply(known=False, sweeping=False, stale_nodes=[], intact=False, live_nodes=0)
        self._counted = dict(report.counters)
        if lifetimes:
            self._lifetimes_at = now
        if member.node != self._looked_as:
            self._gone = self._gone_from_here()
            self._looked_as = member.node
        self._follow_master()
        steady = int(reply[1]) >= self._calls.stale_ms
        stale = [name.decode("utf-8", "surrogateescape") for name in reply[4:]]
        for name in list(self._sweeps):
            if name not in stale and name not in self._gone:
                del self._sweeps[name]
        return BeatReply(
            known=True,
            sweeping=steady,
            stale_nodes=stale,
            intact=True,
            live_nodes=int(reply[2]),
            gone_nodes=sorted(self._gone),
        )

    def _follow_master(self) -> None:
        """Ask the sentinels, where there are some, whether this is still the master: a tenth of the time at most."""
        began = self._shared.monotonic()
        if began < self._master_asked_again:
            return
        with suppress(StoreUnavailableError):  # the next call meets that trouble, too, and tells of it
            self._ask(lambda: clients.moved(self._client))
        ended = self._shared.monotonic()
        self._master_asked_again = ended + 9 * (ended - began)

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        """See the contract. Raises StoreUnavailableError."""
        flags: list[bool] = []
        for start in range(0, len(leases), LEASES_PER_CALL):
            piece = leases[start : start + LEASES_PER_CALL]
            sent = self._shared.monotonic()
            try:
                reply = self._run(self._calls.renew([lease.member for lease in piece]))
            except NotRegisteredError:
                flags += [False] * len(piece)
                continue
            for lease, digit in zip(piece, reply[1], strict=True):
                mine = digit == 49
                if mine:
                    lease.valid_until = sent + self._calls.lease.trusted_s
                flags.append(mine)
        return flags

    def reclaim(self, limit: int = 500) -> Reclaimed:
        """See the contract. Nothing is moved until this node's beats have been unbroken for
        HEARTBEAT_STALE.
        """
        try:
            reply = self._run(self._calls.reclaim(limit))
        except NotRegisteredError:
            return Reclaimed(0, 0, more=False)
        if reply[0] != b"OK":
            return Reclaimed(0, 0, more=False)
        self.taken_over += int(reply[1])
        return Reclaimed(int(reply[1]), int(reply[2]), more=bool(reply[3]))

    def sweep(self, node: str) -> bool:
        """See the contract. Call it again until it says True, or the node is no longer in `stale_nodes` or `gone_nodes`."""
        cursor, found = self._sweeps.get(node, (b"", False))
        gone = node in self._gone
        member = self._shared.member
        try:
            reply = self._run(self._calls.sweep(node, cursor, "dead", gone=gone), member)
        except NotRegisteredError:
            return False
        if reply[0] == b"GONE":
            self._sweeps.pop(node, None)
            self._gone.discard(node)
            return True
        if reply[0] != b"OK":
            self._sweeps.pop(node, None)
            return False
        self.taken_over += int(reply[2]) - int(reply[3])
        found = found or int(reply[2]) > 0
        if reply[1]:
            self._sweeps[node] = (reply[1], found)
            return False
        self._sweeps.pop(node, None)
        if found:
            return False
        forgotten = self._run(self._calls.forget(node, own=False, gone=gone), member)
        self._gone.discard(node)
        return bool(forgotten[0] == b"OK")

    def reconcile(self, held: Sequence[Lease]) -> int:
        """See the contract. Claims may go on: only leases of claims that are surely in `held` are looked
        at.
        """
        member = self._shared.member
        done = member.claims_done
        mine = [lease.member for lease in held if lease.member[27:35] == member.node.encode()]
        newest = max((m[35:41] for m in mine), default=b"")
        up_to = max(newest.decode(), base36(max(0, done - 1)))
        marks = b"".join(held_mark(m) for m in mine)
        cursor, returned = b"", 0
        while True:
            reply = self._run(
                self._calls.sweep(member.node, cursor, "orphans", up_to=up_to, held=marks), member
            )
            returned += int(reply[2])
            cursor = reply[1]
            if not cursor:
                return returned

    def rejoin(self) -> None:
        """See the contract. Raises StoreLostError when the run's keys are gone."""
        old = self._shared.member
        node, call = self._calls.join(self._shared, self._shared.epoch)
        reply = self._calls.joined(self._run(call))
        if not self._shared.joined(old, node, kept=reply.kept):
            # The loop side joined at the same time; one record is enough.
            self._run(self._calls.forget(node, own=True), Member(node))

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()
        self._client.connection_pool.disconnect()
