"""A forked script is what a new interpreter would be, but for the time that its imports take."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from netspy.testing import runner
from netspy.testing.children import wait_until
from netspy.testing.runner import Script, run_command, run_script, start_script
from support.forking import Fork, ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="scripts are forked on Linux only")

TOLD = """
import os, sys, __main__
import netspy.crash
print(__name__, __main__.__dict__ is globals(), sys.argv[1:], os.getcwd(), os.environ.get("NETSPY_X"), sys.path[0])
print(os.getppid() == int(sys.argv[1]), os.getsid(0) == os.getpgid(0) == os.getpid(), netspy.crash.armed)
print(sys.stdout.isatty(), sys.stdout.encoding, sys.stdout.write_through, os.read(0, 1), sorted(os.listdir("/proc/self/fd"))[:3])
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler) if (signal := __import__("signal")) else None
sys.exit(7)
"""
ENDS = {
    "code": ("raise SystemExit(5)\n", 5, ""),
    "words": ("import sys\nsys.exit('over')\n", 1, "over\n"),
    "error": ("import nothing_of_this_name\n", 1, "No module named 'nothing_of_this_name'\n"),
    "interrupt": (
        "import os\nos.kill(os.getpid(), 2)\nimport time; time.sleep(60)\n",
        -2,
        "KeyboardInterrupt\n",
    ),
    "killed": ("import os\nos.kill(os.getpid(), 9)\n", -9, ""),
    "atexit": ("import atexit, sys\natexit.register(sys.stderr.write, 'bye')\n", 0, "bye"),
    "thread": (
        "import sys, threading\nthreading.Timer(0.05, sys.stderr.write, ['late']).start()\n",
        0,
        "late",
    ),
}


@pytest.fixture
def both(tmp_path):
    """Runs a script as a fork and as a new interpreter: two results."""

    def run(source, *args, **env):
        path = tmp_path / "script.py"
        path.write_text(source)
        server = ForkServer()
        argv = [sys.executable, str(path), *args]
        full = {**os.environ, "PYTHONUNBUFFERED": "1", **env}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Script, "spawn", staticmethod(server.spawn))
            with Script(argv, env=full, cwd=tmp_path, own_folder=False) as script:
                forked = script.finish()
        server.close()
        assert server.forked == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Script, "spawn", staticmethod(runner.spawn))
            with Script(argv, env=full, cwd=tmp_path, own_folder=False) as script:
                cold = script.finish()
        return forked, cold

    return run


def test_a_fork_sees_what_a_new_interpreter_sees(both):
    forked, cold = both(TOLD, str(os.getpid()), "-x", NETSPY_X="1", NETSPY_CRASH_AT="after_claim:3")
    assert forked[:3] == cold[:3]
    assert forked.returncode == 7
    assert "True True after_claim" in forked.stdout


@pytest.mark.parametrize("end", ENDS)
def test_a_fork_ends_as_a_new_interpreter_ends(both, end):
    source, code, last = ENDS[end]
    forked, cold = both(source)
    assert forked.returncode == cold.returncode == code
    for result in (forked, cold):
        assert result.stderr.endswith(last)


def test_signals_reach_a_fork_and_its_end_is_seen(tmp_path):
    with start_script("import time\nprint('up')\ntime.sleep(60)\n", cwd=tmp_path) as script:
        assert isinstance(script._process, Fork)
        script.wait_line("up")
        script.pause()
        assert script.alive
        script.cont()
        script.kill()
        assert wait_until(lambda: not script.alive, 10)
        assert script.finish().returncode == -signal.SIGKILL


def test_a_module_runs_as_the_interpreter_runs_it(tmp_path):
    (tmp_path / "shown.py").write_text("import sys\nprint(__name__, __spec__.name, sys.argv, sys.path[0])\n")
    argv = [sys.executable, "-m", "shown", "a"]
    forked = run_command(argv, cwd=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Script, "spawn", staticmethod(runner.spawn))
        assert run_command(argv, cwd=tmp_path)[:3] == forked[:3]
    assert forked.stdout == f"__main__ shown {[str(tmp_path / 'shown.py'), 'a']} {tmp_path}\n"


@pytest.mark.parametrize(
    ("source", "env"),
    [
        ("import sys\nprint('netspy' in sys.modules)\n", {}),
        ("print('netspy' in __import__('sys').__dict__['modules'])\n", {"PYTHONPATH": "/nowhere"}),
        ("print('netspy' in __import__('sys').__dict__['modules'])\n", {"LD_LIBRARY_PATH": "/nowhere"}),
    ],
)
def test_what_a_fork_could_not_show_is_started_anew(source, env):
    assert run_script(source, env=env).stdout == "False\n"


@pytest.mark.cold
def test_a_spider_that_starts_cold_ends_as_a_forked_one(site, tmp_path):
    site.route("/", "<title>x</title>")
    source = f"""
import netspy as mw

class One(mw.AirSpider):
    start_urls = ["{site.url("/")}"]

    def parse(self, request, response):
        yield {{"title": response.css("title::text").get()}}

One().start()
"""
    with start_script(source, cwd=tmp_path) as script:
        assert not isinstance(script._process, Fork)
        assert script.finish().check().summary["items"] == 1
