"""Lua scripts from package data, run by their digest and sent in full only when the server doesn't know them.

A script may begin lines with `--@include <name>`: the text of `<name>.lua` in the same folder takes their place.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis
    import redis.asyncio

Arg = bytes | str | int | float


class Script(NamedTuple):
    """A script's text and the digest Redis knows it by."""

    name: str
    text: str
    sha: str


class Call(NamedTuple):
    """One script call: what to run, on which keys, with which arguments."""

    script: Script
    keys: Sequence[str]
    args: Sequence[Arg]


def _read(folder: str, name: str) -> str:
    return (files(folder.rpartition(".")[0]) / folder.rpartition(".")[2] / f"{name}.lua").read_text("utf-8")


@cache
def load(folder: str, name: str) -> Script:
    """The script `name` of a package folder such as "netspy.frontier.redis.lua", with its includes."""
    lines = []
    for line in _read(folder, name).splitlines():
        if line.startswith("--@include "):
            lines.append(_read(folder, line.removeprefix("--@include ").strip()))
        else:
            lines.append(line)
    text = "\n".join(lines) + "\n"
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def load_all(folder: str) -> None:
    """Read every script of a folder now: a file that is read at its first use may meet a process that can open none."""
    for found in (files(folder.rpartition(".")[0]) / folder.rpartition(".")[2]).iterdir():
        if found.name.endswith(".lua"):
            load(folder, found.name.removesuffix(".lua"))


async def run_async(client: redis.asyncio.Redis, call: Call) -> Any:
    """Run on an asyncio client; send the text once when the server forgot its scripts.

    The command is packed by hiredis, many times faster than redis-py's own way for calls of hundreds of
    arguments. A call that is cancelled or fails half way has dropped its connection.
    """
    from hiredis import pack_command
    from redis.exceptions import NoScriptError

    pack = cast("Callable[[tuple[Arg, ...]], bytes]", pack_command)  # its stub wants a tuple of one
    script, keys, args = call
    pool = client.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call]
    try:
        try:
            sent = pack(("EVALSHA", script.sha, len(keys), *keys, *args))
            await connection.send_packed_command(sent, check_health=False)
            return await connection.read_response()
        except NoScriptError:
            sent = pack(("EVAL", script.text, len(keys), *keys, *args))
            await connection.send_packed_command(sent, check_health=False)
            return await connection.read_response()
    finally:
        await pool.release(connection)


def run_sync(client: redis.Redis, call: Call) -> Any:
    """Run on a blocking client; reload once when the server forgot its scripts."""
    from redis.exceptions import NoScriptError

    script, keys, args = call
    try:
        return client.evalsha(script.sha, len(keys), *keys, *args)
    except NoScriptError:
        return client.eval(script.text, len(keys), *keys, *args)
