"""Marks each test by what it needs, read from the code that it can reach: itself, its fixtures, the helpers of tests.

`process`: starts a process of ours. `server`: starts or uses a server of others. `chaos`: kills, freezes or cuts one of them
off. `guarantee`: the first test that a row of docs/guarantees.md names. So a mark can't be forgotten or outlive its reason.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).resolve().parents[1]
GUARANTEES = TESTS.parent / "docs" / "guarantees.md"
PROCESS = frozenset(
    "start_script run_script start_command run_command FaultRun subprocess multiprocessing create_subprocess_exec".split()
)
SERVER = frozenset(
    "RedisServer RedisCluster RedisReplication MariaDbServer PostgresServer RabbitServer KafkaMock ThreadedMotoServer "
    "EmbeddedRedis shared_server redis_url redis62_url mariadb_url postgres_url any_sql rabbit_url kafka".split()
)
CHAOS = frozenset(
    "kill killpg pause SIGKILL SIGSTOP crash_at wait_killed cut stall blackhole NETSPY_CRASH_AT".split()
)
MARKS = {"process": PROCESS, "server": SERVER, "chaos": CHAOS}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = first_of_each_guarantee(GUARANTEES.read_text("utf-8"))
    for item in items:
        names = words_of(item)
        marks = [mark for mark, words in MARKS.items() if words & names]
        if "chaos" in marks and len(marks) == 1:
            marks = []  # what is killed or cut here is neither a process nor a server
        path, _, name = item.nodeid.partition("::")
        if (path, name.partition("[")[0].rpartition("::")[2]) in first:
            marks.append("guarantee")
        for mark in marks:
            item.add_marker(mark)


def first_of_each_guarantee(page: str) -> set[tuple[str, str]]:
    """File and function of the first test in each row of the page's tables."""
    rows = re.findall(r"^\|.*?`(tests/[\w/]+\.py)::(\w+)`", page, re.M)
    return set(rows)


def words_of(item: pytest.Item) -> frozenset[str]:
    """Every name that the test's code, its fixtures' and its helpers' speak of."""
    reached: list[Any] = [getattr(item, "function", None)]
    words: set[str] = set(getattr(item, "fixturenames", ()))
    for definitions in getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).values():
        reached.append(definitions[-1].func)
    seen: set[int] = set()
    while reached:
        found = reached.pop()
        if id(found) in seen or found is None:
            continue
        seen.add(id(found))
        names, more = spoken(found)
        words |= names
        reached += more
    return frozenset(words)


@cache
def spoken(found: Any) -> tuple[frozenset[str], tuple[Any, ...]]:
    """The names in one function or class, and what of the tests' own code they lead to."""
    if isinstance(found, type):
        parts = [part for part in vars(found).values() if ours(part)]
        parts += [getattr(part, "fget", None) for part in vars(found).values() if isinstance(part, property)]
        return frozenset(), (*filter(ours, parts), *filter(ours, found.__bases__))
    if not isinstance(found, FunctionType):
        return frozenset(), ()
    names = set(names_in(found.__code__))
    leads = [found.__globals__.get(name) for name in names]
    leads += [getattr(lead, name, None) for lead in leads if isinstance(lead, ModuleType) for name in names]
    return frozenset(names), (*filter(ours, leads), *filter(ours, (getattr(found, "__wrapped__", None),)))


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_varnames
    yield from constants_in(code.co_consts)


def constants_in(constants: tuple[Any, ...]) -> Iterator[str]:
    for value in constants:
        if isinstance(value, CodeType):
            yield from names_in(value)
        elif isinstance(value, tuple):  # the names of keyword arguments, too
            yield from constants_in(value)
        elif isinstance(value, str) and value.isidentifier():
            yield value


def ours(found: Any) -> bool:
    """Whether this is a function or class of the tests' own."""
    if not isinstance(found, FunctionType | type):
        return False
    if isinstance(found, type):
        file = getattr(sys.modules.get(found.__module__), "__file__", None) or ""
    else:
        file = found.__code__.co_filename
    return file.startswith(str(TESTS))
