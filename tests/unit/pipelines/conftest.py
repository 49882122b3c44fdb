"""Settings whose every output lies in the test's own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from loguru import logger
from sql_rig import Database

from netspy.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "yet"


@pytest.fixture
def settings(out: Path) -> Settings:
    return Settings(
        JSONL_OUTPUT_DIR=str(out),
        CSV_OUTPUT_DIR=str(out),
        SQLITE_PATH=str(out / "items.db"),
        FAILED_ITEM_PATH=str(out / "failed_items.jsonl"),
        ITEM_RETRY_BACKOFF=0.0,
        ITEM_STORE_PATIENCE=0.0,
    )


@pytest.fixture
def said():
    """The log's lines, as they come."""
    lines = []
    number = logger.add(lambda message: lines.append(str(message)), level="INFO", format="{message}")
    yield lines
    logger.remove(number)


@pytest.fixture(scope="module")
def maria(mariadb):
    """One database for all tests of a file: each makes its table anew."""
    made = Database(mariadb.create_database())
    yield made
    made.engine.dispose()


@pytest.fixture(scope="module")
def pg(postgres):
    """As `maria`, on PostgreSQL."""
    made = Database(postgres.create_database())
    yield made
    made.engine.dispose()
