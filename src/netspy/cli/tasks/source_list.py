"""The task list that a command line names, and what it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from netspy.cli.job import Job, job_of, spider_of_kind
from netspy.errors import ConfigError
from netspy.settings import hide_password

if TYPE_CHECKING:
    from netspy.settings import Settings

Spider = Annotated[
    str | None, typer.Argument(metavar="[SPIDER]", help="FILE[:CLASS] or MODULE[:CLASS] of a TaskSpider.")
]
TaskKey = Annotated[
    str | None, typer.Option("--task-key", metavar="NAME", help="The task list's name, without its prefix.")
]


class Target(NamedTuple):
    """What the command line names. `job`: where the spider's requests are; None for a queue in memory."""

    settings: Settings
    list_name: str
    job: Job


def find_target(
    spider: str | None, task_key: str | None, arguments: list[str] | None, values: list[str] | None
) -> Target:
    """The list. Raises ConfigError, also where tasks are in memory, and a usage error when nothing is named."""
    from netspy import settings as settings_module
    from netspy.cli.target import setting_values
    from netspy.policy.run_scope import run_scope

    if spider is not None:
        made = spider_of_kind("task", spider, arguments, values, "netspy tasks")
        settings = made.load_settings().settings
        if made.in_memory:
            raise ConfigError(
                f"{made.name}: TASK_SOURCE='memory' has no tasks outside the crawl's own process; leave it out for the "
                "list in Redis"
            )
        if made.task_source is not None:
            raise ConfigError(
                f"{made.name} was made with a task_source of its own, which can't be reached from outside; name it with "
                "TASK_SOURCE"
            )
        return Target(settings, task_key or made.list_name, job_of(made, None, None))
    if task_key is None:
        raise typer.BadParameter("name the list: a spider (main.py:Products), or --task-key NAME")
    if arguments:
        raise typer.BadParameter("-a goes with a spider")
    settings = settings_module.load(overrides=setting_values(values or ()), override_origin="-s").settings
    return Target(settings, task_key, Job(settings, run_scope(settings, "", task_key), False))


def place_of(target: Target) -> str:
    """Where the tasks are, as told to people."""
    if target.settings.TASK_SOURCE:
        return hide_password(target.settings.TASK_SOURCE)
    return base_of(target)


def base_of(target: Target) -> str:
    """The list's key in Redis."""
    from netspy.tasks.redis.list import task_keys

    return task_keys(target.settings, target.list_name).base
