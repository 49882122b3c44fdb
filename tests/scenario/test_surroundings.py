"""What a process is started in: closed streams, a reader that leaves, a terminal that goes, another folder, a package."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from scenario_support import lines

from netspy.testing.children import wait_until

SPIDER = """
import time
import netspy as mw


class Pages(mw.AirSpider):
    pages, nap = 4, 0

    def start_requests(self):
        for n in range(int(self.pages)):
            yield mw.Request(f"BASE/p/{n}")

    def parse(self, request, response):
        time.sleep(float(self.nap))
        yield {"url": request.url}


if __name__ == "__main__":
    Pages(MORE).start()
"""
PYTHON = shlex.quote(sys.executable)
JSONL = '["netspy.pipelines.jsonl.JsonlPipeline"]'


@pytest.fixture
def project(numbered, tmp_path):
    """A folder with a spider and a setting.py that has its rows written to rows/items.jsonl."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "setting.py").write_text(
        f"ITEM_PIPELINES = {JSONL}\nJSONL_OUTPUT_DIR = 'rows'\nPROGRESS = 'off'\n"
    )
    (folder / "main.py").write_text(SPIDER.replace("BASE/p/", numbered.url("/p/")).replace("MORE", ""))
    return folder


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("NETSPY_")}
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("how", ["<&- >&- 2>&-", ">&-"])
@pytest.mark.parametrize("command", ["main.py", "-m netspy run main.py"])
def test_a_crawl_that_is_started_without_streams_ends_well(how, command, project):
    """Case HO-04."""
    done = shell(f"{PYTHON} {command} {how}", project)
    assert (done.returncode, len(lines(project / "rows/items.jsonl"))) == (0, 4)
    assert ("Pages finished" in done.stderr) == ("2>" not in how)


def test_rows_for_an_output_that_is_closed_are_refused_before_any_is_fetched(project, numbered):
    done = shell(f"{PYTHON} -m netspy run main.py -o - >&-", project)
    assert done.returncode == 3
    assert "rows are to go to standard output, which is closed" in done.stderr
    assert numbered.hits("/p/0") == 0


@pytest.mark.parametrize("reader", ["| true", "> /dev/full"])
def test_an_exit_code_tells_how_the_crawl_ended_though_nobody_reads_its_last_line(reader, project):
    """Case HO-05."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    done = shell(f"({PYTHON} main.py; echo code $? >&2) {reader}", project)
    assert "code 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert ("line can't be written" in done.stderr) == ("full" in reader)


def test_a_command_whose_output_is_lost_says_so(project):
    done = shell(f"{PYTHON} -m netspy settings > /dev/full", project)
    assert done.returncode == 1
    assert done.stderr.startswith("netspy: error: what the command writes can't be written")


@pytest.mark.parametrize("ignored", [False, True], ids=["heeded", "nohup"])
def test_a_terminal_that_is_closed_is_a_graceful_stop(ignored, project, numbered):
    """Case HO-08: what is unfinished can be gone on with."""
    script = project / "main.py"
    script.write_text(script.read_text().replace("pages, nap = 4, 0", "pages, nap = 40, 0.1"))
    pid, terminal = pty.fork()
    if pid == 0:
        with suppress(BaseException):
            os.chdir(project)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who ran the tests may have ignored it
            before = "trap '' HUP; " if ignored else ""
            text = f"{before}NETSPY_PROGRESS=panel NETSPY_SPIDER_THREAD_COUNT=2 exec {PYTHON} main.py"
            os.execvp("bash", ["bash", "-c", text])
        os._exit(99)
    drain(terminal, lambda: (project / "rows/items.jsonl").exists())
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    stored = {row["url"] for row in lines(project / "rows/items.jsonl")}
    assert os.waitstatus_to_exitcode(status) == (0 if ignored else 129)
    if ignored:
        assert len(stored) == 40
        return
    kept = {row["request"]["u"] for row in lines(project / "failed_requests.jsonl")}
    assert kept
    assert len(stored | kept) == 40


def drain(terminal: int, until) -> None:
    """Take what is written to the terminal, as a screen does."""
    os.set_blocking(terminal, False)

    def look() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 65536)
        return until()

    assert wait_until(look, 60, step=0.02)


@pytest.mark.parametrize("command", ["{main}", "-m netspy run {main}"])
def test_started_from_another_folder_the_projects_settings_hold_and_paths_are_the_callers(
    command, project, tmp_path
):
    """Case HV-06: cron, systemd and containers start from another folder."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = shell(f"{PYTHON} {command.format(main=project / 'main.py')}", elsewhere)
    assert done.returncode == 0, done.stderr
    assert f"settings: {project / 'setting.py'}" in done.stderr
    assert len(lines(elsewhere / "rows/items.jsonl")) == 4


def test_a_file_of_a_package_may_import_what_is_beside_it(project):
    package = project / "shop" / "spiders"
    package.mkdir(parents=True)
    for folder in (project / "shop", package):
        (folder / "__init__.py").touch()
    text = (project / "main.py").read_text()
    (project / "shop/base.py").write_text(text)
    (package / "news.py").write_text("from ..base import Pages\n\n\nclass News(Pages):\n    pass\n")
    for folder, command in (
        (project, "shop/spiders/news.py"),
        (package, "news.py"),
        (project, "shop.spiders.news"),
    ):
        done = shell(f"{PYTHON} -m netspy run {command} -o -", folder)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 4), done.stderr


@pytest.mark.parametrize("threads", [4, 200])
def test_many_hosts_and_few_files_are_no_trouble(threads, project, numbered):
    """Cases HV-05 and HO-12: a connection for each host, or a slot for each request, would need more files than there are."""
    hosts = f'f"http://h{{n % 120}}.localhost:{numbered.port}/p/{{n}}"'
    text = (project / "main.py").read_text().replace(f'f"{numbered.url("/p/")}{{n}}"', hosts)
    assert "localhost" in text
    (project / "main.py").write_text(text)
    command = f"{PYTHON} -m netspy run main.py -a pages=240 -s SPIDER_THREAD_COUNT={threads}"
    done = shell(f"ulimit -n 100; {command}", project)
    assert done.returncode == 0, done.stderr
    assert "240 done, 0 failed" in done.stderr
    assert ("needs more files than this process may open (100" in done.stderr) == (threads == 200)
