"""An SQL pipeline on a database of the test's own, and a look into it that doesn't go through the pipeline."""

from __future__ import annotations

from contextlib import contextmanager

from netspy.pipelines.loader import load_pipelines
from netspy.pipelines.sql import SqlPipeline
from netspy.settings import Settings
from netspy.sqlio.dialects import dialect_of
from netspy.sqlio.engine import make_engine


@contextmanager
def pipeline(url, kind=SqlPipeline, *, key=(), table="t", **settings):
    """`kind` opened on `url`; `key` is the `__unique_key__` of `table`."""
    [made] = load_pipelines([kind(url)], Settings(**settings))
    made.open()
    try:
        made.describe(table, tuple(key))
        yield made
    finally:
        made.close()


class Database:
    """Statements and answers."""

    def __init__(self, url):
        self.url = url
        self.engine = make_engine(url, pool_size=2)
        with self.engine.connect() as connection:
            self.dialect = dialect_of(connection)

    def run(self, *statements):
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement, ())

    def rows(self, sql):
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql, ())]

    def dicts(self, sql):
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.exec_driver_sql(sql, ()).mappings()]

    def quote(self, name):
        return self.dialect.quote(name)
