"""Shared by the fault comparison's spiders: what to crawl, and a sink that shows every row ever written.

The sink is a file of one JSON line per row, appended by a single write call, so that a row is there whole or
not at all and a row written twice is seen twice.
"""

import json
import os
import time

BASE = os.environ["FAULTS_BASE"]
REDIS = os.environ["FAULTS_REDIS"]
ROWS = os.environ["FAULTS_ROWS"]  # the sink
SEEDED = os.environ["FAULTS_SEEDED"]  # grows by one byte for each seed that start_requests gives
LISTS = int(os.environ["FAULTS_LISTS"])  # list pages to start from; 0: start from detail pages
SEEDS = int(os.environ["FAULTS_SEEDS"])  # detail pages to start from
SEED_PAUSE = float(os.environ["FAULTS_SEED_PAUSE"])  # seconds between two seeds
WRITE_PAUSE = float(os.environ["FAULTS_WRITE_PAUSE"])  # seconds that each write takes
IN_FLIGHT = int(os.environ["FAULTS_IN_FLIGHT"])
SETTINGS = json.loads(os.environ["FAULTS_SETTINGS"])  # the durability settings of this framework

LINKS = "a.detail::attr(href)"


def seed_urls():
    if LISTS:
        return [f"{BASE}/list/{number}" for number in range(LISTS)]
    return [f"{BASE}/detail/{number}" for number in range(SEEDS)]


def seeded():
    """One more seed was handed to the framework."""
    with open(SEEDED, "ab", buffering=0) as file:
        file.write(b".")


def row(url, response):
    return {"url": url, "title": response.css("h1::text").get()}


def append(rows):
    """Keep rows, without the pause."""
    text = "".join(json.dumps(dict(one)) + "\n" for one in rows)
    file = os.open(ROWS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def write(rows):
    """What a pipeline calls: a store that takes its time, then has all these rows at once."""
    if WRITE_PAUSE:
        time.sleep(WRITE_PAUSE)
    append(rows)
