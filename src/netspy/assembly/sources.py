"""The task source that TASK_SOURCE names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.errors import ConfigError, NetspyError
from netspy.observe.faults import describe_error
from netspy.settings import hide_password
from netspy.tasks.contract import TaskSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from netspy.settings import Settings

_REDIS = frozenset({"redis", "rediss", "unix"})
_SQL = frozenset({"mysql", "mariadb", "postgres", "postgresql", "sqlite"})


def make_source(
    settings: Settings, list_name: str, *, on_outage: Callable[[bool, float], None] | None = None
) -> Any:
    """The source that TASK_SOURCE names, for the task list of that name. Raises ConfigError, MissingExtraError."""
    wanted = settings.TASK_SOURCE.strip()
    scheme = wanted.partition("://")[0].partition("+")[0].lower()
    if not wanted:
        from netspy.assembly import _need_redis
        from netspy.tasks.redis.list import RedisTaskList, task_keys

        _need_redis()
        return RedisTaskList(settings, task_keys(settings, list_name), on_outage=on_outage)
    if wanted == "memory":
        from netspy.tasks.memory import MemoryTaskSource

        return MemoryTaskSource()
    name = f"{settings.REDIS_KEY_PREFIX}.{list_name}"  # where the address names none
    if scheme in _REDIS or wanted.partition(":")[0] in {"stream", "list"}:
        return _stream(wanted, settings, name, on_outage)
    if "://" in wanted:
        if scheme in {"amqp", "amqps"}:
            from netspy.tasks.amqp import AmqpTaskSource

            return AmqpTaskSource(wanted, settings, queue=name, on_outage=on_outage)
        if scheme == "kafka":
            from netspy.tasks.kafka.source import KafkaTaskSource

            return KafkaTaskSource(
                wanted,
                settings,
                topic=name,
                group=name,
                servers=settings.KAFKA_BOOTSTRAP_SERVERS,
                on_outage=on_outage,
            )
        if scheme in _SQL:
            from netspy.tasks.sql.table import SqlTaskSource

            return SqlTaskSource(settings, list_name, on_outage=on_outage)
        raise ConfigError(
            f"TASK_SOURCE={hide_password(wanted)!r}: no source for {scheme}://; give amqp://, kafka://, stream:KEY, mysql://, "
            "postgresql://, sqlite:///, memory or the path of a class"
        )
    from netspy.assembly import _load_class

    made_by = _load_class(wanted, "TASK_SOURCE")
    try:
        made = made_by(settings, list_name)
    except NetspyError:
        raise
    except Exception as error:
        raise ConfigError(
            f"TASK_SOURCE={wanted!r}: making it raised {describe_error(error)}; a source is made with two values, the "
            "settings and the name of the task list"
        ) from error
    return check_source(made, f"TASK_SOURCE={wanted!r}")


def _stream(
    wanted: str, settings: Settings, group: str, on_outage: Callable[[bool, float], None] | None
) -> TaskSource:
    """The group is the job's own, so that two jobs on one stream each get all of it."""
    from netspy.assembly import _need_redis
    from netspy.tasks.message_source import kind_of, redis_place
    from netspy.tasks.redis.stream import TASK_FIELD, RedisStreamSource

    _need_redis()
    if kind_of(wanted) != "stream":
        raise ConfigError(
            f"TASK_SOURCE={hide_password(wanted)!r}: in Redis it names a stream (stream:KEY, redis://…?stream=KEY); leave it "
            "empty for the list <REDIS_KEY_PREFIX>:<task_key>:tasks"
        )
    url, key, own = redis_place("stream", wanted, settings)
    return RedisStreamSource(
        settings, key, group=own or group, field=TASK_FIELD, url=url, on_outage=on_outage
    )


def check_source(source: Any, shown: str) -> Any:
    """The source, when it has all that the contract names. Raises ConfigError."""
    wanted = (*(name for name in vars(TaskSource) if not name.startswith("_")), *TaskSource.__annotations__)
    missing = [name for name in wanted if not hasattr(source, name)]
    if missing:
        raise ConfigError(f"{shown} has no {', '.join(missing)}; see netspy.tasks.contract.TaskSource")
    return source
