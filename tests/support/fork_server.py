"""The program behind `support.forking`: it has imported what scripts import, and each script is a fork of it.

It has one thread and opens no connection, so that a fork of it is what a new interpreter would be after the same imports.
Every request is one JSON line on a socket with the script's stdout and stderr beside it; the answer is the child's pid.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import time
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path

# All that a spider on Redis, an AirSpider and the `netspy` command load before they do anything.
WARM = (
    "netspy.testing.runner",
    "netspy.assembly",
    "netspy.assembly.air",
    "netspy.assembly.shared",
    "netspy.assembly.tasks",
    "netspy.assembly.batch",
    "netspy.assembly.resume",
    "netspy.launch.single",
    "netspy.launch.fleet",
    "netspy.frontier.redis",
    "netspy.pipelines.jsonl",
    "netspy.pipelines.sqlite",
    "netspy.pipelines.console",
    "netspy.cli.app",
    "redis.asyncio",
    "redis.asyncio.sentinel",
)


def serve(server: socket.socket) -> dict:
    """Fork a child for each request; in the child, and only there, it returns the request."""
    server.sendall(b"\n")
    while True:
        line, streams, _, _ = socket.recv_fds(server, 1 << 20, 2)
        if not line:
            os._exit(0)  # whoever started this is gone
        request = json.loads(line)
        told, tell = os.pipe()
        middle = os.fork()
        if middle == 0:
            between = os.getpid()
            child = os.fork()
            if child:
                os.write(tell, f"{child}\n".encode())
                os._exit(0)
            os.close(told)
            server.close()
            become(request, streams, middle=between)
            os.close(tell)  # last: from now on it is the script
            return request
        os.close(tell)
        for stream in streams:
            os.close(stream)
        # Once the process between has ended, the child is the asker's: it has said that it takes in orphans.
        os.waitpid(middle, 0)
        answer = b""
        while part := os.read(told, 4096):
            answer += part
        os.close(told)
        server.sendall(answer + b"\n")


def become(request: dict, streams: list[int], middle: int) -> None:
    """Be a process of its own: session, streams, folder, environment and arguments."""
    os.setsid()
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    argv = request["argv"]
    sys.orig_argv[:] = [sys.executable, *argv]
    if argv[0] == "-m":
        sys.argv[:] = ["-m", *argv[2:]]
        sys.path[0] = os.getcwd()
    else:
        sys.argv[:] = argv
        sys.path[0] = str(Path(argv[0]).parent)
    if crash := sys.modules.get("netspy.crash"):
        importlib.reload(crash)  # the one module that reads the environment when it is imported
    while os.getppid() == middle:
        time.sleep(0.0002)


def main_module(path: str | None) -> types.ModuleType:
    """An empty `__main__`, as a new interpreter has it."""
    made = types.ModuleType("__main__")
    made.__dict__["__builtins__"] = builtins
    if path is not None:
        made.__file__ = path
        made.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = made
    return made


if __name__ == "__main__":
    for name in WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    argv = serve(socket.socket(fileno=int(sys.argv[1])))["argv"]
    # What the script raises leaves this module, so that the interpreter deals with it as with any script's.
    own = sys.modules["__main__"]
    if argv[0] == "-m":
        main_module(None)
        runpy._run_module_as_main(argv[1])
    else:
        made = main_module(argv[0])
        exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec", dont_inherit=True), made.__dict__)
