"""Rows into MariaDB (and PostgreSQL): the pipeline against the driver's own executemany, in one run.

    .venv/bin/python benchmarks/sql_bulk.py [--rows 100000] [--rounds 3]

Both write the same rows in transactions of 500 into the same table with a unique key; the table is emptied in between
and the order changes from round to round. The pipeline is called as the writer calls it: values are checked, the
table's columns are known, rows are upserted. The driver inserts without any of that, and once more with the upsert.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from netspy.messages.row import Row
from netspy.pipelines.delivery.writer import BatchWriter
from netspy.pipelines.sql import SqlPipeline
from netspy.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.sql_servers import MariaDbServer, PostgresServer, SqlServer

BATCH = 500
COLUMNS = ("url", "title", "price", "stock", "seen", "body")
TABLE = {
    "mysql": "CREATE TABLE page (url VARCHAR(200) PRIMARY KEY, title TEXT, price DOUBLE, stock INT, seen DATETIME, body TEXT)",
    "postgresql": "CREATE TABLE page (url TEXT PRIMARY KEY, title TEXT, price FLOAT8, stock INT, seen TIMESTAMP, body TEXT)",
}
UPSERT = {
    "mysql": " ON DUPLICATE KEY UPDATE " + ", ".join(f"{c}=VALUES({c})" for c in COLUMNS[1:]),
    "postgresql": " ON CONFLICT (url) DO UPDATE SET " + ", ".join(f"{c}=excluded.{c}" for c in COLUMNS[1:]),
}


def rows(count: int) -> list[dict[str, Any]]:
    start = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    return [
        {
            "url": f"https://example.com/product/{n}",
            "title": f"Product {n}: it's “new” 新品",
            "price": n / 100,
            "stock": n % 97,
            "seen": start + timedelta(seconds=n),
            "body": f'Line one of {n}.\nLine two says "quoted" things. ' * 3,
        }
        for n in range(count)
    ]


def driver(server: SqlServer, database: str, items: list[dict[str, Any]], *, upsert: bool) -> float:
    tail = UPSERT[server.scheme] if upsert else ""
    sql = f"INSERT INTO page ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}){tail}"
    values = [tuple(item.values()) for item in items]
    connection = server._admin(database)
    autocommit = connection.autocommit
    autocommit(False) if callable(autocommit) else setattr(connection, "autocommit", False)
    begun = time.perf_counter()
    with connection.cursor() as cursor:
        for at in range(0, len(values), BATCH):
            cursor.executemany(sql, values[at : at + BATCH])
            connection.commit()
    took = time.perf_counter() - begun
    connection.close()
    return took


def pipeline(url: str, items: list[dict[str, Any]]) -> float:
    made = SqlPipeline(url)
    made.settings = Settings()
    made.open()
    made.describe("page", ("url",))
    begun = time.perf_counter()
    for at in range(0, len(items), BATCH):
        made.save_items("page", items[at : at + BATCH])
    took = time.perf_counter() - begun
    made.close()
    return took


def writer(url: str, items: list[dict[str, Any]]) -> float:
    """The whole way: the batch writer, its thread, and the pipeline."""

    class Nowhere:
        def append(self, dead: Any) -> None:
            raise AssertionError(dead)

    async def go() -> float:
        settings = Settings(SQL_URL=url)
        made = SqlPipeline()
        made.settings = settings
        writes = BatchWriter([made], settings, dead_letter=Nowhere())
        begun = time.perf_counter()
        for at in range(0, len(items), BATCH):
            await writes.write([Row("page", item, unique_key=("url",)) for item in items[at : at + BATCH]])
        took = time.perf_counter() - begun
        await writes.close()
        return took

    return asyncio.run(go())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    items = rows(options.rows)
    for made in (MariaDbServer, PostgresServer):
        with made() as server:
            url = server.create_database("bench")
            server.execute(TABLE[server.scheme], database="bench")
            ways = {
                "driver, INSERT": lambda s=server: driver(s, "bench", items, upsert=False),
                "driver, upsert": lambda s=server: driver(s, "bench", items, upsert=True),
                "pipeline, upsert": lambda u=url: pipeline(u, items),
                "writer + pipeline": lambda u=url: writer(u, items),
            }
            took: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(options.rounds):
                for name in list(ways)[:: 1 if number % 2 == 0 else -1]:
                    server.execute("TRUNCATE TABLE page", database="bench")
                    took[name].append(ways[name]())
            best = statistics.median(took["driver, INSERT"])
            for name, times in took.items():
                middle = statistics.median(times)
                print(
                    f"{type(server).__name__:15} {name:18} {options.rows / middle:9,.0f} rows/s"
                    f"  {best / middle:5.0%} of the driver's INSERT"
                )


if __name__ == "__main__":
    main()
