"""Whole-framework benchmark: the same crawl by netspy and its peers, interleaved, each pinned to one core.

    python benchmarks/run.py                    netspy alone: AirSpider, and Spider on Redis
    python benchmarks/run.py --peers            beside the peers (makes an environment for each; minutes)
    python benchmarks/run.py --peers --only scrapy --rounds 5

Needs nginx and redis-server on PATH, taskset, and two cores (core 0 crawls, core 1 serves). Only ratios within one run
mean something. The work: 50 list pages and 2,000 detail pages of 34 KB, 7 CSS fields each, items to a file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPIDERS = HERE / "spiders"

ENVIRONMENTS = {
    "raw": "aiohttp uvloop curl_cffi redis hiredis selectolax turbohtml parsel lxml w3lib msgspec",
    "scrapy": "scrapy scrapy-redis hiredis uvloop",
    "registry": "netspy==1.3.3 hiredis redis",
    "crawlee": "crawlee[all] uvloop",
    "feapder": "feapder[all]==1.9.3 hiredis",
}

# name: (environment, script, requests in flight, variables)
RUNS = {
    "netspy AirSpider": ("ours", "ours.py", 64, {}),
    "netspy Spider (Redis)": ("ours", "ours.py", 64, {"BENCH_DIST": "1"}),
    "bare loop: aiohttp + selectolax": ("raw", "minimal.py", 64, {"BENCH_PARSER": "selectolax"}),
    "scrapy": ("scrapy", "scrapy_peer.py", 64, {}),
    "scrapy-redis": ("scrapy", "scrapy_peer.py", 64, {"BENCH_DIST": "1"}),
    "crawlee (parsel, impit)": ("crawlee", "crawlee_peer.py", 64, {}),
    "same-named package, AirSpider, 8 threads": ("registry", "registry_peer.py", 8, {}),
    "same-named package, Spider (Redis)": ("registry", "registry_peer.py", 32, {"BENCH_DIST": "1"}),
    "feapder AirSpider": ("feapder", "feapder_peer.py", 32, {}),
    "feapder Spider (Redis)": ("feapder", "feapder_peer.py", 32, {"BENCH_DIST": "1"}),
}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def python_of(environment: str, folder: Path) -> str:
    """The interpreter of an environment, made when it isn't there."""
    if environment == "ours":
        return sys.executable
    place = folder / f"v-{environment}"
    if not (place / "bin/python").exists():
        print(f"making the environment of {environment} …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run(
            [str(place / "bin/pip"), "install", "-q", *ENVIRONMENTS[environment].split()], check=True
        )
    return str(place / "bin/python")


class Servers:
    """nginx with the generated site and a Redis without persistence, both on core 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web, self.redis = free_port(), free_port()
        self.children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Servers:
        site = self.folder / "site"
        if not site.exists():
            subprocess.run(
                [sys.executable, str(HERE / "site.py"), "--dir", str(site)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        run = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        for place in (self.folder, run, site):
            place.chmod(0o755)
        conf = (
            (HERE / "nginx.conf.in")
            .read_text()
            .replace("@RUN@", str(run))
            .replace("@SITE@", str(site))
            .replace("@PORT@", str(self.web))
        )
        (run / "nginx.conf").write_text(conf)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        pin = ["taskset", "-c", "1"]
        self.children.append(
            subprocess.Popen([*pin, "nginx", "-p", str(run), "-c", str(run / "nginx.conf")], **quiet)
        )
        self.children.append(
            subprocess.Popen(
                [
                    *pin,
                    "redis-server",
                    "--port",
                    str(self.redis),
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--bind",
                    "127.0.0.1",
                    "--dir",
                    str(run),
                ],
                **quiet,
            )
        )
        for port in (self.web, self.redis):
            end = time.monotonic() + 10
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 0.2).close()
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise SystemExit(
                            f"nothing answers on port {port}: are nginx and redis-server installed?"
                        ) from None
                    time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.terminate()
            child.wait(10)

    def cli(self, *words: str) -> str:
        return subprocess.run(
            ["redis-cli", "-p", str(self.redis), *words], capture_output=True, text=True, check=True
        ).stdout


def once(
    name: str, python: str, servers: Servers, lists: int, folder: Path, limit: float
) -> dict[str, float]:
    """One run of one framework; raises RuntimeError when it did not do the whole work."""
    _, script, flight, variables = RUNS[name]
    out = Path(tempfile.mkdtemp(prefix="out-", dir=folder))
    servers.cli("flushall")
    servers.cli("config", "resetstat")
    env = os.environ | {
        "BENCH_BASE": f"http://127.0.0.1:{servers.web}", "BENCH_REDIS": f"redis://127.0.0.1:{servers.redis}/0",
        "BENCH_LISTS": str(lists), "BENCH_CONC": str(flight), "BENCH_OUT": str(out), "LOG_LEVEL": "WARNING",
        "PYTHONPATH": str(SPIDERS), "PYTHONDONTWRITEBYTECODE": "1",
    } | variables  # fmt: skip
    try:
        done = subprocess.run(
            ["taskset", "-c", "0", python, str(SPIDERS / script)],
            env=env,
            cwd=out,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
        report = [line for line in done.stdout.splitlines() if line.startswith('{"p')]
        if not report:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1][:200])
        result: dict[str, float] = json.loads(report[-1])
        if result["pages"] != lists * 41:
            raise RuntimeError(f"{result['pages']} of {lists * 41} pages")
        stats = re.findall(r"cmdstat_([^:]+):calls=(\d+)", servers.cli("info", "commandstats"))
        top = {
            "eval",
            "evalsha",
            "zadd",
            "zrem",
            "zcard",
            "sadd",
            "hget",
            "hset",
            "rpush",
            "lpop",
            "get",
            "set",
            "zrangebyscore",
            "zpopmin",
            "bzpopmin",
            "llen",
            "lpush",
        }
        script_calls = sum(int(n) for word, n in stats if word in {"eval", "evalsha"})
        result["commands"] = (script_calls or sum(int(n) for word, n in stats if word in top)) / result[
            "pages"
        ]
        return result
    finally:
        shutil.rmtree(out, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", help="keep site and environments here (default: a temporary folder)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lists", type=int, default=50, help="list pages of 40 details each")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", help="comma-separated parts of names, besides netspy itself")
    parser.add_argument("--timeout", type=float, default=240)
    options = parser.parse_args()
    for tool in ("nginx", "redis-server", "redis-cli", "taskset"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not on PATH; install it to run the benchmark")
    folder = Path(options.dir or tempfile.mkdtemp(prefix="netspy-bench-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else [""]
    names = [
        n for n in RUNS if n.startswith("netspy ") or (options.peers and any(part in n for part in wanted))
    ]
    pythons = {n: python_of(RUNS[n][0], folder) for n in names}
    results: dict[str, list[dict[str, float]]] = {n: [] for n in names}
    troubles: dict[str, str] = {}
    with Servers(folder) as servers:
        for number in range(options.rounds):
            for name in names:
                print(f"round {number + 1}: {name} …", file=sys.stderr, flush=True)
                try:
                    results[name].append(
                        once(name, pythons[name], servers, options.lists, folder, options.timeout)
                    )
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    troubles[name] = str(error)
    report(results, troubles)


def report(results: dict[str, list[dict[str, float]]], troubles: dict[str, str]) -> None:
    """A Markdown table of medians; the ratio is CPU per page against netspy's own AirSpider in the same run."""

    def median(name: str, key: str) -> float:
        return statistics.median(run[key] for run in results[name])

    own = median("netspy AirSpider", "cpu_per_k")
    print(
        "| framework | pages/s | CPU s per 1,000 pages | CPU per page, netspy AirSpider = 1 | peak MB | Redis calls per page | exit lag s |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in sorted((n for n in results if results[n]), key=lambda n: median(n, "cpu_per_k")):
        calls = f"{median(name, 'commands'):.2f}" if "edis" in name else ""
        print(
            f"| {name} | {median(name, 'pps'):,.0f} | {median(name, 'cpu_per_k'):.2f} | {median(name, 'cpu_per_k') / own:.2f} "
            f"| {median(name, 'rss_mb'):.0f} | {calls} | {median(name, 'wall_s') - median(name, 'active_s'):.1f} |"
        )
    for name, trouble in troubles.items():
        print(f"\n{name}: {trouble}")


if __name__ == "__main__":
    main()
