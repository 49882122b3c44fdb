"""`netspy status`: a shared crawl from outside."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from netspy.cli.job import (
    ArgumentOption,
    Job,
    KeyOption,
    RunOption,
    SetOption,
    SpiderArgument,
    connect,
    find_job,
    find_run,
    nothing_there,
)
from netspy.cli.output import facts, iso_time, json_line, local_time, say, table
from netspy.cli.rates import BeatRates, done_of
from netspy.errors import ConfigError
from netspy.observe.log import is_terminal
from netspy.observe.progress import clock_time, duration, eta, rate_text

if TYPE_CHECKING:
    import redis

    from netspy.cluster.status import Status

HELP = """Show a shared crawl from outside: its nodes, queue, requests in flight, delayed and failed, rate and time left.
Of a TaskSpider or BatchSpider also the tasks that have requests in the queue; of a BatchSpider the batch and its master.

The rate comes from two heartbeats of each node, so a look takes up to HEARTBEAT_INTERVAL (3 s) while nodes are
running; --no-rate doesn't wait. Without --run or RUN_ID, a job that has only runs shows the newest one.

\b
Examples
  netspy status main.py
  netspy status main.py:NewsSpider --watch 2
  netspy status --key NewsSpider -s REDIS_URL=redis://10.0.0.5:6379/0 --json
  netspy status main.py --runs

\b
Exit codes
  0  shown; with --watch: ended by Ctrl-C
  3  there is no such job or run; a setting is wrong
  5  Redis does not answer
"""

POLL_S = 0.2
BEATS_WAITED = 1.4
"""Heartbeat intervals until the rate is shown without the nodes that are late."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status", help=HELP, short_help="Show a shared crawl: nodes, queue, rate.")(status)


def status(
    *,
    spider: SpiderArgument = None,
    key: KeyOption = None,
    run: RunOption = None,
    runs: Annotated[bool, typer.Option("--runs", help="List the job's runs, newest first.")] = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", metavar="SECONDS", min=0.2, help="Look again and again, until Ctrl-C."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per look (with --runs: per run), for programs.")
    ] = False,
    no_rate: Annotated[bool, typer.Option("--no-rate", help="Don't wait for heartbeats.")] = False,
    arguments: ArgumentOption = None,
    values: SetOption = None,
) -> int:
    """Print to stdout: columns on a terminal, tabs elsewhere, never colours."""
    if runs and watch is not None:
        raise typer.BadParameter("--runs shows a list once; leave out --watch")
    job = find_job(spider, key, run, arguments, values)
    with connect(job) as client:
        if runs:
            _print_runs(client, job, as_json=as_json)
            return 0
        job, now = find_run(client, job)
        rates = BeatRates()
        rates.update(now)
        if watch is None:
            if not no_rate:
                now = _measure_rates(client, job, now, rates)
            _print(job, now, rates, as_json=as_json)
            return 0
        try:
            _watch(client, job, now, rates, watch, as_json=as_json)
        except KeyboardInterrupt:
            return 0
    return 0


def _measure_rates(client: redis.Redis, job: Job, now: Status, rates: BeatRates) -> Status:
    """Look until every live node has beaten twice, or is late."""
    from netspy.cluster.status import read_status

    end = time.monotonic() + BEATS_WAITED * job.settings.HEARTBEAT_INTERVAL
    while not rates.complete(now) and time.monotonic() < end:
        time.sleep(POLL_S)
        now = read_status(client, job.scope, job.settings)
        rates.update(now)
    return now


def _watch(
    client: redis.Redis, job: Job, now: Status, rates: BeatRates, every_s: float, *, as_json: bool
) -> None:
    """Show until Ctrl-C, also over times without Redis. Raises ConfigError when the job's keys are gone."""
    from redis.exceptions import RedisError

    from netspy.cluster.status import read_status
    from netspy.redisio.errors import error_kind, one_line

    on_terminal = is_terminal(sys.stdout) and not as_json
    while True:
        if on_terminal:
            sys.stdout.write("\x1b[H\x1b[J")
        _print(job, now, rates, as_json=as_json)
        if not on_terminal and not as_json:
            print()
        sys.stdout.flush()
        while True:
            time.sleep(every_s)
            try:
                now = read_status(client, job.scope, job.settings)
                break
            except RedisError as error:
                if error_kind(error) != "away":
                    raise
                say(f"Redis does not answer ({one_line(error)}); looking again")
        if not now.exists:
            raise ConfigError(nothing_there(job))
        rates.update(now)


def state_of(now: Status, seed: str) -> str:
    """What is going on, in a word or two. `seed`: the seeding lock's state."""
    left = now.queued + now.leased + now.delayed
    if now.batch is not None and not now.batch.is_done and not now.live_nodes:
        return "no worker" if now.master else "stopped"
    if now.live_nodes:
        return "seeding" if seed == "seeding" else "crawling" if left else "idle"
    if left or seed == "seeding":
        return "stopped"
    return "seeding failed" if seed == "failed" else "finished"


_STATES = {
    "no worker": "no worker: the master waits, start one with `netspy run`",
    "idle": "idle: nothing is queued, nodes are ending or kept alive",
    "stopped": "stopped: no node is running, the next one goes on",
    "seeding failed": "seeding failed: the next node tries again",
}


def _seed(now: Status, job: Job) -> tuple[str, str, float]:
    """State of the seeding lock, who holds or set it, and when, in seconds since 1970 (0: unknown)."""
    from netspy.frontier.redis.calls import read_lock

    left_ms = -1.0 if now.seed_left_s is None else now.seed_left_s * 1000
    if not now.seed:
        return "none", "", 0.0
    state, who, age = read_lock(now.seed, int(left_ms), now.now * 1000, job.settings.SPIDER_SEED_LOCK_TTL)
    return state, who, now.now - age if age != float("inf") else 0.0


def as_dict(job: Job, now: Status, rates: BeatRates) -> dict[str, Any]:
    """What --json shows. Times in ISO 8601 (UTC), durations in seconds, rates per second; None = unknown."""
    seed, who, at = _seed(now, job)
    rate = rates.total(now)
    left = now.queued + now.leased + now.delayed
    return {
        "namespace": now.namespace,
        "redis_key": job.scope.redis_key,
        "run_id": job.scope.run_id,
        "class": now.owner,
        "kind": now.kind,
        "created": iso_time(now.created),
        "state": state_of(now, seed),
        "seed": {"state": seed, "by": who, "at": iso_time(at)},
        "done": done_of(now.counters),
        "queued": now.queued,
        "in_flight": now.leased,
        "delayed": now.delayed,
        "next_due": now.next_due_s,
        "failed": now.failed,
        "items": now.counters.get("items", 0),
        "open_tasks": now.open_tasks,
        "batch": None
        if now.batch is None
        else msgspec.to_builtins(now.batch) | {"time": iso_time(now.batch.time)},
        "master": master_of(now) or None,
        "fingerprints": now.fingerprints,
        "rate": rate,
        "eta": None if rate is None else eta(left, rate),
        "nodes": [
            {
                "id": node.id,
                "host": node.host,
                "pid": node.pid,
                "alive": node.alive,
                "heartbeat_age": node.beat_age_s,
                "in_flight": node.in_flight,
                "unacked": node.unacked,
                "done": done_of(node.counters),
                "failed": node.counters.get("request_failed", 0),
                "items": node.counters.get("items", 0),
                "rate": rates.of(node),
                "started": iso_time(node.started),
                "version": node.version,
            }
            for node in now.nodes
        ],
        "counters": now.counters,
    }


def master_of(now: Status) -> str:
    """The live batch master as `host:pid since …`; "" when there is none."""
    from netspy.tasks.master_lock import read_holder

    return str(read_holder(now.master, now.master_left_s)) if now.master else ""


def _print(job: Job, now: Status, rates: BeatRates, *, as_json: bool) -> None:
    if as_json:
        print(json_line(as_dict(job, now, rates)))
        return
    seed, who, at = _seed(now, job)
    state = state_of(now, seed)
    seeded = {"none": "no mark", "seeding": f"going on, by {who}"}.get(
        seed, f"{seed} {local_time(at)} by {who}"
    )
    rate = rates.total(now)
    left = now.queued + now.leased + now.delayed
    time_left = None if rate is None else eta(left, rate)
    due = f" (next in {duration(now.next_due_s)})" if now.delayed and now.next_due_s is not None else ""
    about_batch = now.kind == "batch" or now.batch is not None
    rows = [
        ("job", now.namespace),
        ("class", f"{now.owner} ({now.kind})" if now.owner else ""),
        ("state", _STATES.get(state, state)),
        ("seeds", "" if about_batch else seeded),
        ("batch", now.batch.text if now.batch is not None else ""),
        ("master", (master_of(now) or "none") if about_batch else ""),
        ("open tasks", f"{now.open_tasks:,}" if now.open_tasks or now.kind in {"task", "batch"} else ""),
        ("done", f"{done_of(now.counters):,}"),
        ("queued", f"{now.queued:,}"),
        ("in flight", f"{now.leased:,}"),
        ("delayed", f"{now.delayed:,}{due}"),
        ("failed", f"{now.failed:,}"),
        ("items", f"{now.counters.get('items', 0):,}"),
        ("fingerprints", f"{now.fingerprints:,}"),
        ("rate", "" if rate is None or not now.live_nodes else rate_text(rate)),
        ("time left", "" if time_left is None or not left else clock_time(time_left)),
    ]
    for line in facts([row for row in rows if row[1]]):
        print(line)
    if now.nodes:
        print()
        for line in _node_lines(now, rates):
            print(line)


def _node_lines(now: Status, rates: BeatRates) -> list[str]:
    head = ("node", "host", "pid", "state", "heartbeat", "in flight", "done", "failed", "rate")
    rows = []
    for node in now.nodes:
        rate = rates.of(node)
        rows.append(
            (
                node.id.lstrip("0") or "0",
                node.host,
                str(node.pid),
                "alive" if node.alive else "dead",
                f"{duration(node.beat_age_s)} ago",
                f"{node.in_flight:,}",
                f"{done_of(node.counters):,}",
                f"{node.counters.get('request_failed', 0):,}",
                "" if rate is None else rate_text(rate),
            )
        )
    return table(head, rows, right=("pid", "in flight", "done", "failed", "rate"))


def _print_runs(client: redis.Redis, job: Job, *, as_json: bool) -> None:
    from netspy.cluster.runs import all_run_ids, list_runs

    found = list_runs(client, job.scope)
    if not found:
        say(f"{job.scope.job} has no runs: it was never crawled with a RUN_ID")
        return
    if as_json:
        for run in found:
            values = {
                "run_id": run.run_id,
                "started": iso_time(run.started),
                "exists": run.exists,
                "queued": run.queued,
                "failed": run.failed,
            }
            print(json_line(values))
    else:
        rows = [
            (
                run.run_id,
                local_time(run.started),
                "kept" if run.exists else "gone",
                f"{run.queued:,}",
                f"{run.failed:,}",
            )
            for run in found
        ]
        for line in table(("run", "started", "keys", "queued", "failed"), rows, right=("queued", "failed")):
            print(line)
    more = len(all_run_ids(client, job.scope)) - len(found)
    if more > 0:
        say(f"{more:,} older runs are not listed")
