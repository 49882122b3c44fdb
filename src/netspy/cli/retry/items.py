"""The items of `netspy retry`: from the dead-letter file and the shared store to the pipelines that lack them."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from netspy import settings as settings_module
from netspy.cli.job import find_job, find_spider_object, job_of, serving
from netspy.cli.output import say, table, things
from netspy.cli.target import class_settings, find_spider, setting_values
from netspy.errors import ConfigError, ItemError
from netspy.observe import log
from netspy.observe.log import is_terminal
from netspy.observe.throttle import Throttled
from netspy.pipelines.errors import cause_of
from netspy.policy.run_scope import run_scope
from netspy.raised import run_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from netspy.pipelines.dead_letters.replay import Letters, Wanted
    from netspy.pipelines.delivery.events import PipelineEvent
    from netspy.settings import Settings

_FAILED_AGAIN = 6
_SHOWN_EVERY_S = 10.0


class _Place(NamedTuple):
    """Whose settings and which job: `module` is where the spider's classes are."""

    settings: Settings
    job: str | None
    module: str | None


def retry_items(
    spider: str | None,
    wanted: Wanted,
    *,
    output: str | None,
    key: str | None,
    arguments: list[str] | None,
    values: list[str] | None,
    dry_run: bool,
) -> int:
    """Exit code 0, or 6 when some failed again. Raises NetspyError."""
    place = _place(spider, key, arguments, values)
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # the project's pipelines and items, as with `netspy run`
    with ExitStack() as stack:
        settings = (
            stack.enter_context(serving(place.settings)) if _own_redis(place.settings) else place.settings
        )
        kept = _open_letters(settings, place, stack)
        if dry_run:
            _show(kept, wanted)
            return 0
        log.setup(settings, spider="retry")
        # Who waits at a terminal may start again: a store that is away is not waited for.
        patience = msgspec.structs.replace(settings, ITEM_STORE_DOWN="spill")
        return run_loop(_replay(kept, wanted, patience, place.module, output))


def _place(
    spider: str | None, key: str | None, arguments: list[str] | None, values: list[str] | None
) -> _Place:
    overrides = setting_values(values or ())
    if spider is None:
        settings = settings_module.load(overrides=overrides, override_origin="-s").settings
        job = find_job(None, key, None, arguments, values).scope.job if key is not None else None
        return _Place(settings, job, None)
    chosen = find_spider(spider)
    settings = class_settings(chosen, overrides).settings
    if not settings.FAILED_ITEM_URL:
        return _Place(settings, None, chosen.__module__)
    made = find_spider_object(spider, None, arguments, values)
    settings = made.load_settings().settings
    if made.shared:
        return _Place(settings, job_of(made, key, None).scope.job, chosen.__module__)
    return _Place(settings, run_scope(settings, made.name, key).job, chosen.__module__)


def _own_redis(settings: Settings) -> bool:
    return settings.FAILED_ITEM_URL == "redis" and settings.REDIS_URL == "embedded"


def _open_letters(settings: Settings, place: _Place, stack: ExitStack) -> list[Letters]:
    """Where dead letters are: the file, and the shared store if there is one."""
    from netspy.pipelines.dead_letters.file import DeadLetterFile
    from netspy.pipelines.dead_letters.shared import in_redis, open_store

    kept: list[Letters] = [DeadLetterFile(settings.FAILED_ITEM_PATH)]
    if settings.FAILED_ITEM_URL:
        if in_redis(settings.FAILED_ITEM_URL) and place.job is None:
            raise ConfigError(
                f"FAILED_ITEM_URL={settings_module.hide_password(settings.FAILED_ITEM_URL)!r} keeps the items of each job "
                "apart; name the spider (netspy retry main.py --items) or the job (--key NewsSpider)"
            )
        store = open_store(settings, place.job or "")
        if store is not None:
            stack.callback(store.close)
            kept.append(store)
    return kept


# -- what would be done ----------------------------------------------------------------------------------------


def _show(kept: list[Letters], wanted: Wanted) -> None:
    """Counts by table, pipeline and cause, to stdout."""
    found: Counter[tuple[str, str, str]] = Counter()
    for letters in kept:
        for dead in letters.read():
            now, _ = wanted.choose(dead)
            if now is not None:
                names = now.row.pipelines or (("(checked again)",) if now.item else ("(all)",))
                for name in names:
                    found[now.row.table, name.rpartition(".")[2], cause_of(now.error)] += 1
    places = " and ".join(letters.name for letters in kept)
    if not found:
        say(f"nothing to write again in {places}")
        return
    rows = [(t, pipeline, f"{n:,}", error) for (t, pipeline, error), n in found.most_common()]
    for line in table(("table", "pipeline", "items", "error"), rows, right=("items",)):
        print(line)


# -- doing it --------------------------------------------------------------------------------------------------


async def _replay(
    kept: list[Letters], wanted: Wanted, settings: Settings, module: str | None, output: str | None
) -> int:
    from netspy.cli.run import pipeline_for
    from netspy.pipelines.dead_letters.replay import Again, replay
    from netspy.pipelines.delivery.writer import BatchWriter
    from netspy.pipelines.loader import load_pipelines

    pipelines: Any = settings.ITEM_PIPELINES if output is None else [pipeline_for(output)]
    again = Again()
    with _event_log() as tell, _stoppable() as stopped:
        writer = BatchWriter(load_pipelines(pipelines, settings), settings, dead_letter=again, on_event=tell)
        failed = left = 0
        try:
            for letters in kept:
                progress = _Progress(letters.name)
                done = await replay(
                    letters, writer, wanted=wanted, again=again, find_class=lambda path: _item_class(path, module),
                    validate=settings.ITEM_VALIDATE, progress=progress, stopped=stopped,
                )  # fmt: skip
                progress.end()
                failed += done.failed
                left += done.unseen
                if done != (0, 0, 0, 0) or len(kept) == 1:
                    (say if output == "-" else print)(_format_done(letters.name, done))
        finally:
            await writer.close()
    if left:
        say("interrupted; the same command goes on where it was")
        return 130
    return _FAILED_AGAIN if failed else 0


def _format_done(name: str, done: Any) -> str:
    if done == (0, 0, 0, 0):
        return f"no failed item in {name}"
    text = f"{things(done.stored, 'item')} stored, {done.failed:,} failed again and stay in {name}"
    rest = done.left + done.unseen
    return f"{text}, {rest:,} left there" if rest else text


def _item_class(path: str, module: str | None) -> Any:
    """The class of an item that was refused. Raises ItemError when it can't be had."""
    place, _, name = path.rpartition(".")
    if "<locals>" in path:
        raise ItemError(f"{path} was defined inside a function; move it to the top of its module")
    # A class of a script has the module name `__main__` there, and the file's name when the command loads it.
    for candidate in (place, module):
        if candidate is None or candidate == "__main__":
            continue
        with suppress(Exception):
            found: Any = importlib.import_module(candidate)
            for part in (name if candidate == place else path.removeprefix("__main__.")).split("."):
                found = getattr(found, part)
            return found
    raise ItemError(f"its class {path} can't be imported here; name the spider: netspy retry FILE --items")


@contextmanager
def _event_log() -> Iterator[Callable[[PipelineEvent], None]]:
    """What pipelines say, each cause once and how often it came at the end."""
    logger = log.get_logger("retry")
    lines = Throttled(lambda line: logger.warning("{}", line), limit=1, interval_s=3600.0)

    def tell(event: PipelineEvent) -> None:
        if event.kind != "retry":
            lines(f"{event.kind} {event.pipeline} {event.table} {event.cause}", event.message)

    yield tell
    lines.flush(everything=True)


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end the replay after the batch under way; a second one at once."""
    seen: list[int] = []
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def handle(number: signal.Signals) -> None:
        seen.append(number)
        loop.remove_signal_handler(number)

    with suppress(NotImplementedError, ValueError, RuntimeError):
        for number in numbers:
            loop.add_signal_handler(number, handle, number)
    try:
        yield lambda: bool(seen)
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            for number in numbers:
                loop.remove_signal_handler(number)


class _Progress:
    """One line on a terminal that counts up; elsewhere a line every ten seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._terminal = is_terminal(sys.stderr)
        self._next = time.monotonic() + (0.0 if self._terminal else _SHOWN_EVERY_S)
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (0.1 if self._terminal else _SHOWN_EVERY_S)
        text = f"{done:,} of {total:,} items of {self._name}"
        if self._terminal:
            self._shown = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        else:
            say(text)

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
