"""Who is compared: environment, spider, settings for durability, and the queue command whose answer gets lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from netspy.frontier.redis.calls import script

SPIDERS = Path(__file__).resolve().parent.parent / "spiders"

ENVIRONMENTS = {
    "scrapy": "scrapy scrapy-redis hiredis",
    "feapder": "feapder==1.9.3 hiredis",
    "registry": "netspy==1.3.3 redis hiredis",
}


class Framework(NamedTuple):
    """`pop` is a part of the Redis request that takes work from the queue, as MONITOR shows it for this version."""

    label: str
    environment: str
    script: str
    settings: dict[str, Any]
    pop: bytes
    packages: tuple[str, ...]


FRAMEWORKS = {
    "netspy": Framework(
        "netspy",
        "ours",
        "faults_netspy.py",
        {"PROGRESS": "off", "ROBOTS_OBEY": False},
        script("claim").sha.encode(),
        ("netspy", "redis"),
    ),
    "scrapy-redis": Framework(
        "scrapy-redis",
        "scrapy",
        "faults_scrapy.py",
        {"SCHEDULER_PERSIST": True},
        b"ZREMRANGEBYRANK",
        ("scrapy-redis", "scrapy", "redis"),
    ),
    "feapder": Framework(
        "feapder",
        "feapder",
        "faults_feapder.py",
        {"REQUEST_LOST_TIMEOUT": 10},
        b"8879e97b0712e8c7affa96d4a29f35c96552ca06",
        ("feapder", "redis"),
    ),
    "registry": Framework(
        "same-named package, default dedup",
        "registry",
        "faults_netspy.py",
        {"SPIDER_TASK_LEASE": 10.0},
        b"2ff0fef6dc53c247bfaf8afb425f80379145a4fd",
        ("netspy", "redis"),
    ),
    "registry-redis": Framework(
        "same-named package, dedup in Redis",
        "registry",
        "faults_netspy.py",
        {"SPIDER_TASK_LEASE": 10.0, "DEDUP_FILTER": "redis"},
        b"2ff0fef6dc53c247bfaf8afb425f80379145a4fd",
        ("netspy", "redis"),
    ),
}


def python_of(environment: str, folder: Path) -> str:
    """The interpreter of an environment, made when it isn't there."""
    if environment == "ours":
        return sys.executable
    place = folder / f"v-{environment}"
    if not (place / "bin/python").exists():
        print(f"making the environment of {environment} …", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        words = ENVIRONMENTS[environment].split()
        subprocess.run([str(place / "bin/pip"), "install", "-q", *words], check=True)
    return str(place / "bin/python")


def versions(framework: Framework, python: str) -> str:
    """Its packages with their versions, as installed."""
    code = (
        "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    done = subprocess.run(
        [python, "-c", code, *framework.packages], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
