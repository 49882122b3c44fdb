"""Which job a command is about, and the Redis it lives in."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer

from netspy import settings as settings_module
from netspy.cli.output import say
from netspy.errors import ConfigError, StoreUnavailableError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from netspy.cluster.status import Status
    from netspy.policy.run_scope import RunScope
    from netspy.settings import Settings

SpiderArgument = Annotated[
    str | None,
    typer.Argument(metavar="[SPIDER]", help="FILE[:CLASS] or MODULE[:CLASS]: its redis_key and settings."),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="REDIS_KEY", help="The job's redis_key, without its prefix.")
]
RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN_ID", help="This run of the job.")]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option("-a", "--argument", metavar="KEY=VALUE", help="An argument of the spider."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("-s", "--set", metavar="KEY=VALUE", help="A setting, e.g. REDIS_URL; beats every source."),
]

RUNS_SEARCHED = 100
_PAUSE_S = 0.1


class Job(NamedTuple):
    """What the command line names. `run_given`: a run was asked for, by --run or the setting RUN_ID."""

    settings: Settings
    scope: RunScope
    run_given: bool


def find_job(
    spider: str | None,
    key: str | None,
    run: str | None,
    arguments: list[str] | None,
    values: list[str] | None,
) -> Job:
    """The job on Redis. Raises ConfigError, also for an AirSpider, and a usage error when nothing is named."""
    from netspy.cli.target import setting_values

    if spider is not None:
        return job_of(find_spider_object(spider, run, arguments, values), key, run)
    if key is None:
        raise typer.BadParameter("name the job: a spider (main.py:News), or --key REDIS_KEY")
    overrides = setting_values(values or ())
    if run is not None:
        overrides["RUN_ID"] = run
    return _job(settings_module.load(overrides=overrides, override_origin="-s").settings, key, run)


def job_of(made: Any, key: str | None, run: str | None) -> Job:
    """The job of a spider object. Raises ConfigError for an AirSpider."""
    if not made.shared:
        raise ConfigError(
            f"{made.name} is an AirSpider: its queue is in the memory of its process and can't be seen from "
            "outside; change its base class to netspy.Spider for that"
        )
    own = made.name if made.redis_key is None else made.redis_key
    settings = made.load_settings().settings
    if made.kind == "batch":
        if run is not None:
            raise ConfigError(
                f"--run {run!r}: {made.name} is a BatchSpider, whose batches follow each other in one job; leave it out"
            )
        settings = msgspec.structs.replace(settings, RUN_ID="")
    return _job(settings, own if key is None else key, run)


def _job(settings: Settings, redis_key: str, run: str | None) -> Job:
    from netspy.policy.run_scope import run_scope

    scope = run_scope(settings, "", redis_key)
    return Job(settings, scope, run_given=bool(scope.run_id) or run is not None)


def spider_of_kind(
    kind: str, spider: str, arguments: list[str] | None, values: list[str] | None, command: str
) -> Any:
    """A spider of this kind ("task", "batch"). Raises ConfigError for one of another kind."""
    made = find_spider_object(spider, None, arguments, values)
    if made.kind != kind:
        base = next(k.__name__ for k in type(made).__mro__ if k.__module__.startswith("netspy.spiders"))
        wanted = {"task": "TaskSpider", "batch": "BatchSpider"}[kind]
        an = "an" if base[0] in "AEIOU" else "a"
        raise ConfigError(f"{made.name} is {an} {base}; {command} is for a {wanted}")
    return made


def find_spider_object(
    spider: str, run: str | None, arguments: list[str] | None, values: list[str] | None
) -> Any:
    """The spider as `netspy run` would make it. Raises ConfigError."""
    from netspy.cli.run import make_spider

    made = make_spider(spider, arguments or (), values or ())
    if run is not None:
        made.override_settings({"RUN_ID": run}, "--run")
    return made


@contextmanager
def connect(job: Job, *, key: str = "") -> Iterator[redis.Redis]:
    """A client of the job's Redis, or of the server that has `key`, which has answered. With REDIS_URL="embedded" the
    folder's server is used, started for the time of the block if need be.

    What the client raises in the block becomes ConfigError or StoreUnavailableError, in one line.
    """
    with serving(job.settings) as settings:
        from netspy.redisio.client import sync_client

        client = sync_client(settings, key=key or job.scope.job)
        from redis.exceptions import RedisError

        try:
            _wait_answer(client)
            yield client
        except RedisError as error:
            raise _user_error(error, settings, job.scope) from None
        finally:
            client.close()
            client.connection_pool.disconnect()


def _wait_answer(client: redis.Redis) -> None:
    """Until the server answers, but not for long: who types a command may type it again."""
    from netspy.redisio.client import CLI_PATIENCE_S
    from netspy.redisio.errors import error_kind

    end = time.monotonic() + CLI_PATIENCE_S
    while True:
        try:
            client.ping()
        except Exception as error:
            if error_kind(error) != "away" or time.monotonic() >= end:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


@contextmanager
def serving(settings: Settings) -> Iterator[Settings]:
    """Settings whose REDIS_URL can be connected to: for "embedded" the folder's server runs during the block."""
    if settings.REDIS_URL != "embedded":
        yield settings
        return
    folder = Path(settings.EMBEDDED_DATA_DIR)
    if not any((folder / name).exists() for name in ("appendonlydir", "appendonly.aof")):
        raise ConfigError(
            f"EMBEDDED_DATA_DIR={settings.EMBEDDED_DATA_DIR!r} holds no data (looked in {folder.absolute()}); "
            "run this where the crawl was started, or name its folder"
        )
    from netspy.redisio.embedded.server import EmbeddedRedis

    # As a user of its own, so that the last crawler to leave doesn't stop the server in the middle of a look.
    with EmbeddedRedis(folder) as url:
        yield msgspec.structs.replace(settings, REDIS_URL=url)


def _user_error(error: Exception, settings: Settings, scope: RunScope) -> Exception:
    """A Redis error in the user's words; itself when it is a fault of ours."""
    from netspy.redisio.errors import error_kind, one_line, unusable

    trouble = error_kind(error)
    text = one_line(error)
    if trouble == "away":
        return StoreUnavailableError(
            f"Redis at {hide_password(settings.REDIS_URL)} does not answer ({text}); start it, or correct REDIS_URL"
        )
    if trouble == "config":
        return unusable(settings.REDIS_URL, error)
    if trouble == "full":
        return StoreUnavailableError(
            f"Redis has no memory left ({text}); free memory, or raise its maxmemory"
        )
    if trouble == "type" or "WRONGTYPE" in text:
        return ConfigError(
            f"Redis keys of {scope.ns} belong to another program ({text}); check the redis_key and REDIS_KEY_PREFIX"
        )
    return error


def find_run(client: redis.Redis, job: Job) -> tuple[Job, Status]:
    """The job with the run to look at, and its status.

    Where no run is named and all that was crawled has run ids, it is the newest run that has keys, which is
    said on stderr. Raises ConfigError when there is nothing.
    """
    from netspy.cluster.runs import list_runs
    from netspy.cluster.status import read_status
    from netspy.policy.run_scope import run_scope

    status = read_status(client, job.scope, job.settings)
    if _something(status):
        return job, status
    if job.scope.run_id:
        # RUN_ID stands in the environment, and the job is a BatchSpider's, which has no runs.
        settings = msgspec.structs.replace(job.settings, RUN_ID="")
        scope = run_scope(settings, "", job.scope.redis_key)
        whole = read_status(client, scope, settings)
        if whole.kind == "batch" or whole.batch is not None:
            return Job(settings, scope, False), whole
    runs = [run for run in list_runs(client, job.scope, limit=RUNS_SEARCHED) if run.exists]
    if not job.run_given and runs:
        settings = msgspec.structs.replace(job.settings, RUN_ID=runs[0].run_id)
        scope = run_scope(settings, "", job.scope.redis_key)
        others = f", the newest of {len(runs)}; --run names another" if len(runs) > 1 else ""
        say(f"run {scope.run_id}{others}")
        return Job(settings, scope, True), read_status(client, scope, settings)
    if runs:
        known = ", ".join(run.run_id for run in runs[:5])
        raise ConfigError(f"there is no run {job.scope.run_id!r} of {job.scope.job}; the newest are: {known}")
    raise ConfigError(nothing_there(job))


def nothing_there(job: Job) -> str:
    """The line for a job that Redis doesn't know."""
    scope = job.scope
    hint = "check the name, --run and REDIS_KEY_PREFIX"
    if scope.redis_key.startswith(f"{scope.prefix}:"):
        hint = f"leave the prefix {scope.prefix}: out of --key"
    return (
        f"Redis at {hide_password(job.settings.REDIS_URL)} knows no job {scope.ns}: it was never started, was "
        f"reset, or has run out; {hint}"
    )


def _something(status: Status) -> bool:
    kept = (status.queued, status.leased, status.delayed, status.failed, status.batch, status.master)
    return status.exists or any(kept)
