"""The rate of the SQL pipeline, beside the driver's own bulk insert in the same run (`benchmarks/sql_bulk.py`)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sql_bulk.py"
ROWS = 100_000


@pytest.mark.slow
def test_the_writer_stores_at_least_six_tenths_of_the_rows_that_the_driver_alone_inserts_in_mariadb(mariadb):
    bench = runpy.run_path(str(BENCHMARK))
    items = bench["rows"](ROWS)
    url = mariadb.create_database()
    database = url.rpartition("/")[2]
    mariadb.execute(bench["TABLE"]["mysql"], database=database)
    driver, writer = [], []
    for _ in range(2):  # the better of two each: the machine has others to serve
        mariadb.execute("TRUNCATE TABLE page", database=database)
        driver.append(bench["driver"](mariadb, database, items, upsert=False))
        mariadb.execute("TRUNCATE TABLE page", database=database)
        writer.append(bench["writer"](url, items))
    mariadb.drop_database(database)
    assert min(driver) / min(writer) >= 0.6, (driver, writer)
