"""What tests of task tables share: rows, statements, waiting."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy

from support.batch_tables import CREATE, admin


def kind_of(url: str) -> str:
    scheme = url.partition("://")[0]
    return {"mariadb": "mysql"}.get(scheme, scheme)


def run_sql(url: str, *statements: str) -> None:
    with admin(url) as db:
        for statement in statements:
            db.exec_driver_sql(statement, ())


def fill(url: str, tasks: int) -> None:
    """The task table with `tasks` rows."""
    run_sql(url, CREATE[kind_of(url)])
    with admin(url) as db:
        rows = [{"id": n, "url": f"/page/{n}"} for n in range(1, tasks + 1)]
        db.execute(sqlalchemy.text("INSERT INTO crawl_task (id, url) VALUES (:id, :url)"), rows)


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
