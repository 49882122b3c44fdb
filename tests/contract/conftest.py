"""Task tables for contract tests."""

from __future__ import annotations

from typing import Any

import pytest

from netspy.core.batch_store import SqlBatchStore


@pytest.fixture
def opened():
    """Stores that are closed after the test."""
    stores: list[SqlBatchStore] = []

    def open_store(url: str, table: str = "crawl_task", **options: Any) -> SqlBatchStore:
        stores.append(SqlBatchStore(table, url, **options))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()
