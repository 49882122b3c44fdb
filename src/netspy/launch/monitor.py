"""A batch master in this process: event loop, signals, summary; with a MemoryBatchStore a worker beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from netspy import assembly
from netspy.assembly.contract import TableSpider
from netspy.engine.batch.master import BatchMaster, MasterEnd
from netspy.engine.node import Node, force_exit
from netspy.launch.loops import loop_factory, refuse_running_loop
from netspy.launch.observer import cluster_snapshot, cluster_state
from netspy.launch.signals import ExitSignals, install_stop_handlers
from netspy.launch.single import config_problem, say_settings, strays, write_line
from netspy.observe import log
from netspy.observe import summary as summaries
from netspy.observe.outcome import ExitCode, Outcome, exit_code, stop_of
from netspy.observe.panel import PanelProgress, make_progress
from netspy.observe.progress import RateMeter
from netspy.observe.summary import RunSummary
from netspy.raised import run_loop
from netspy.settings import Settings, in_use

_SHOW_S = 1.0


def run_monitor(spider: TableSpider, *, once: bool, signals: ExitSignals) -> tuple[RunSummary, Settings]:
    """Be the master until stopped or, with `once`, until a batch has ended. Raises ConfigError, StoreUnavailableError."""
    config_problem(spider, 1)
    refuse_running_loop(f"{spider.name}.start_monitor")
    loaded = spider.load_settings()
    settings = loaded.settings
    log.setup(settings, spider=spider.name)
    say_settings(spider, loaded)
    spider.begin_run()
    before = ExitSignals()
    with (
        in_use(spider.name, loaded),
        assembly.embedded_store(spider, settings) as settings,
    ):
        main = _run(spider, settings, once, before, signals)
        return run_loop(
            main, strayed=strays(spider.logger, spider.counters), factory=loop_factory()
        ), settings


async def _run(
    spider: TableSpider, settings: Settings, once: bool, before: ExitSignals, signals: ExitSignals
) -> RunSummary:
    from netspy.assembly.batch import build_master, close_store, in_process

    loop = asyncio.get_running_loop()
    started = datetime.now(UTC)

    def outage(away: bool, seconds: float) -> None:
        if away:
            spider.logger.warning("Redis is away; the master waits for it")
        else:
            spider.logger.info("Redis is back after {:.1f} s", seconds)

    built = build_master(spider, settings, once=once, on_outage=outage)
    worker = _Worker(spider, settings) if in_process(spider) else None

    def summary_of(outcome: Outcome, code: ExitCode, reason: str, end: MasterEnd | None) -> RunSummary:
        if end is not None and end.counts is not None and worker is None:
            spider.counters.inc("tasks_done", end.counts.done)
            spider.counters.inc("tasks_failed", end.counts.failed)
        finished = datetime.now(UTC)
        return summaries.build(
            spider.counters, spider=spider.name, kind="batch" if worker is not None else "batch_master",
            outcome=outcome, code=code, started=started, finished=finished,
            elapsed_s=(finished - started).total_seconds(), reason=reason, redis_key=built.redis_key,
            namespace=built.namespace, outputs=worker.outputs() if worker is not None else (),
        )  # fmt: skip

    def forced() -> None:
        write_line(summary_of("forced", ExitCode.FORCED, "a second signal", None))
        assembly.leave_embedded(0.5)
        force_exit(int(ExitCode.FORCED))

    def stop(name: str, number: int) -> None:
        spider.logger.info("{}: giving the master lock up; once more to leave at once", name)
        built.master.stop(name, number)
        built.queue.give_up_waiting()
        if worker is not None:
            worker.stop(name, number)

    seen, uninstall = install_stop_handlers(stop, forced)
    spider._running = _Stopper(built.master, loop)  # noqa: SLF001 - the spider's own handle for stop()
    try:
        async with _panel(spider, settings, lambda: bool(seen)):
            end = await _work(built.master.run(), worker)
    except BaseException:
        uninstall()
        before.restore()
        raise
    finally:
        spider._running = None  # noqa: SLF001
        await built.queue.close()
        close_store(spider)
    uninstall()
    signals.hold(bool(seen), forced)
    outcome, code = _judged(end)
    return summary_of(outcome, code, end.reason or _told(end), end)


@asynccontextmanager
async def _panel(
    spider: TableSpider, settings: Settings, stopping: Callable[[], bool]
) -> AsyncIterator[None]:
    """On a terminal: the batch and the workers. Elsewhere the master's own log lines tell how far it is."""
    shown = make_progress(settings)
    if not isinstance(shown, PanelProgress):
        yield
        return
    task = asyncio.create_task(_show(shown, spider, settings, stopping), name="netspy-master-panel")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        shown.close()


async def _show(
    shown: PanelProgress, spider: TableSpider, settings: Settings, stopping: Callable[[], bool]
) -> None:
    from netspy.assembly.shared import SharedView, scope_of

    view = SharedView(settings, scope_of(spider, settings))
    rate, node_rates, began = RateMeter(), dict[str, RateMeter](), time.monotonic()
    try:
        while True:
            try:
                cluster = await view.look()
            except Exception as error:  # a display must not stop a master
                spider.logger.debug("progress can't be shown: {!r}", error)
            else:
                batch = cluster.batch
                state = cluster_state(cluster, stopping=stopping())
                if state == "crawling" and not cluster.live_nodes:
                    over = batch is not None and batch.is_done
                    state = "waiting for the next batch" if over else "no worker yet"
                elapsed = time.monotonic() - began
                shown.update(
                    cluster_snapshot(cluster, f"{spider.name} master", "", elapsed, state, rate, node_rates)
                )
            await asyncio.sleep(_SHOW_S)
    finally:
        await view.close()


async def _work(master: Coroutine[Any, Any, MasterEnd], worker: _Worker | None) -> MasterEnd:
    """The master's end. The worker beside it starts with it and is stopped after it."""
    if worker is None:
        return await master
    crawling = asyncio.create_task(worker.run(), name="netspy-worker-node")
    leading = asyncio.create_task(master, name="netspy-batch-master")
    await asyncio.wait({crawling, leading}, return_when=asyncio.FIRST_COMPLETED)
    if crawling.done() and not leading.done():
        # A worker that ended by itself has broken, or was stopped by the spider's code.
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        crawling.result()
        return MasterEnd("stopped", "the worker has ended")
    worker.stop("the batch is done", None)
    for one in await asyncio.gather(leading, crawling, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
    return leading.result()


class _Worker:
    """A worker node beside the master."""

    def __init__(self, spider: TableSpider, settings: Settings) -> None:
        import msgspec

        self._built = assembly.build(spider, msgspec.structs.replace(settings, SPIDER_KEEP_ALIVE=True))
        self._node = Node(self._built.parts)
        self._built.on_outage(self._node.outage)

    async def run(self) -> None:
        try:
            ended = await self._node.run()
        finally:
            self._built.close()
        await self._built.after(self._node, ended)
        if ended.outcome in {"failed", "store_lost"}:
            from netspy.errors import StoreLostError

            raise StoreLostError(ended.reason)

    def stop(self, reason: str, number: int | None) -> None:
        self._node.stop(reason, signal=number)
        if number is not None:
            self._built.give_up_waiting()

    def outputs(self) -> list[str]:
        return self._built.outputs()


class _Stopper:
    """The spider's own handle for `stop()`."""

    def __init__(self, master: BatchMaster, loop: asyncio.AbstractEventLoop) -> None:
        self._master = master
        self._loop = loop

    def stop(self, reason: str) -> None:
        self._loop.call_soon_threadsafe(lambda: self._master.stop(reason))


def _judged(end: MasterEnd) -> tuple[Outcome, ExitCode]:
    outcome: Outcome = end.outcome
    counts = end.counts
    if outcome == "finished" and counts is not None and counts.failed and not counts.done:
        outcome = "all_failed"
    return outcome, exit_code(outcome, stop="" if end.signal is None else stop_of(end.signal))


def _told(end: MasterEnd) -> str:
    if end.batch is None or end.counts is None:
        return ""
    failed = f", {end.counts.failed} failed" if end.counts.failed else ""
    return f"batch {end.batch}: {end.counts.done}/{end.counts.total}{failed}"
