"""BatchSpider's store: the contract suite on memory, SQLite, MariaDB and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy

from netspy.core.batch_store import MemoryBatchStore, SqlBatchStore
from netspy.testing.batch_store_contract import BatchStoreContract
from support.batch_tables import CREATE, admin

if TYPE_CHECKING:
    from netspy.core.batch_store import BatchStore


class TestMemoryBatchStore(BatchStoreContract):
    def make_store(self, rows: list[dict[str, Any]]) -> MemoryBatchStore:
        return MemoryBatchStore(tasks=rows)


class TestSqlBatchStore(BatchStoreContract):
    @pytest.fixture(autouse=True)
    def _database(self, any_sql: str):
        self.url = any_sql
        self.handles: list[SqlBatchStore] = []
        yield
        for store in self.handles:
            store.close()

    def make_store(self, rows: list[dict[str, Any]]) -> SqlBatchStore:
        with admin(self.url) as db:
            db.exec_driver_sql(CREATE[db.dialect.name])
            if rows:
                insert = "INSERT INTO crawl_task (id, url) VALUES (:id, :url)"
                db.execute(sqlalchemy.text(insert), rows)
        return self.reopen(None)

    def grow_old(self, store: BatchStore) -> float:
        with admin(self.url) as db:
            change = "UPDATE crawl_task SET update_time = '2020-01-01 00:00:00' WHERE batch_status = 2"
            db.exec_driver_sql(change, ())
        return 600.0

    def reopen(self, store: Any) -> SqlBatchStore:
        handle = SqlBatchStore("crawl_task", self.url, patience=60.0)
        self.handles.append(handle)
        return handle
