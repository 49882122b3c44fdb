"""From the class paths of ITEM_PIPELINES and `Item.__pipelines__` to pipeline objects."""

from __future__ import annotations

import difflib
import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from netspy.errors import ConfigError
from netspy.pipelines.own_settings import applied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netspy.pipelines.base import BasePipeline
    from netspy.settings import Settings

_HERE = "netspy.pipelines."
_BUILT_IN = (
    *("console.ConsolePipeline", "csv.CsvPipeline", "jsonl.JsonlPipeline", "sqlite.SqlitePipeline"),
    *("mysql.MysqlPipeline", "postgres.PostgresPipeline", "sql.SqlPipeline"),
    *("parquet.ParquetPipeline", "mongo.MongoPipeline", "elasticsearch.ElasticsearchPipeline"),
    *("files.FilesPipeline", "kafka.KafkaPipeline", "rabbitmq.RabbitmqPipeline", "redis.RedisPipeline"),
)


def load_pipelines(paths: Sequence[str | type | BasePipeline], settings: Settings) -> list[BasePipeline]:
    """The pipelines, in order, each with its `settings` set and not opened yet.

    A path is `pkg.mod.Class` or `pkg.mod:Class`; classes and ready objects are taken as well. What isn't a
    BasePipeline but has `save_items` is accepted. Raises ConfigError that names the path and what failed.
    """
    return [_make(path, settings) for path in paths]


def pipeline_name(pipeline: Any) -> str:
    """The class path by which rows and dead letters name a pipeline (an object or a class)."""
    kind = pipeline if isinstance(pipeline, type) else type(pipeline)
    return f"{kind.__module__}.{kind.__qualname__}"


def _make(path: str | type | BasePipeline, settings: Settings) -> BasePipeline:
    found: Any = _import(path) if isinstance(path, str) else path
    named = path if isinstance(path, str) else repr(path)
    if not callable(getattr(found, "save_items", None)):
        raise ConfigError(f"pipeline {named} has no save_items(table, items); derive it from BasePipeline")
    if isinstance(found, type):
        try:
            found = found()
        except ConfigError:
            raise  # a missing extra, or a setting, in its own words
        except Exception as error:
            raise ConfigError(
                f"pipeline {named}: making it failed: {type(error).__name__}: {error}"
            ) from error
    with suppress(AttributeError):  # a class of the user's own with __slots__ may have no room for it
        found.settings = applied(settings, found)
    return cast("BasePipeline", found)


def _import(path: str) -> Any:
    module_name, _, attribute = path.partition(":") if ":" in path else path.rpartition(".")
    if not module_name or not attribute:
        raise ConfigError(
            f"pipeline {path!r} is no class path; write 'package.module.Class' or 'package.module:Class'"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"pipeline {path!r}: importing {module_name} needs {error.name}, which isn't installed"
            ) from error
        raise ConfigError(_no_module(path, module_name)) from error
    except Exception as error:
        raise ConfigError(
            f"pipeline {path!r}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            if module_name == "__main__":
                raise ConfigError(
                    f"pipeline {path!r} was defined in a script that was run, which can't be imported here; "
                    "move the class to a module and name it by that"
                )
            close = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"pipeline {path!r}: {module_name} has no {attribute}{hint}")
        found = getattr(found, part)
    return found


def _no_module(path: str, module_name: str) -> str:
    if module_name.startswith(_HERE):
        have = ", ".join(_HERE + name for name in _BUILT_IN)
        return f"pipeline {path!r}: there is no module {module_name}; netspy has {have}"
    return (
        f"pipeline {path!r}: there is no module {module_name}; "
        "check the spelling, and that the command runs in the project's folder"
    )
