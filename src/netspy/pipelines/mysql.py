"""MySQL and MariaDB, by the MYSQL_* settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.pipelines.own_settings import given
from netspy.pipelines.sql import SqlPipeline
from netspy.sqlio.address import mysql_address

if TYPE_CHECKING:
    from netspy.sqlio.address import SqlAddress
    from netspy.sqlio.dialects import OnConflict


class MysqlPipeline(SqlPipeline):
    """Stores rows in MYSQL_DB on MYSQL_HOST; otherwise as SqlPipeline.

    MySQL takes any unique key of the table for "the row is there".
    """

    def __init__(
        self,
        url: str = "",
        *,
        db: Any = None,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        password: str | None = None,
        pool_size: int | None = None,
    ) -> None:
        """`url`, or the MYSQL_* settings of this pipeline. `db`: a database's name, or a MysqlDB: its address."""
        super().__init__(url)
        self._at: SqlAddress | None = getattr(db, "address", None)
        self.own_settings = given(
            "MysqlPipeline", MYSQL_HOST=host, MYSQL_PORT=port, MYSQL_USER=user, MYSQL_PASSWORD=password,
            MYSQL_DB=db if self._at is None else None, MYSQL_POOL_SIZE=pool_size,
        )  # fmt: skip

    def address(self) -> SqlAddress:
        """The database of the MYSQL_* settings, or the URL given to the constructor."""
        if self._at is not None:
            return self._at
        return super().address() if self.url else mysql_address(self.settings)

    def connections(self) -> int:
        """MYSQL_POOL_SIZE."""
        return self.settings.MYSQL_POOL_SIZE

    def on_conflict(self) -> OnConflict:
        """Update, unless MYSQL_UPDATE_ON_DUPLICATE is off."""
        return "update" if self.settings.MYSQL_UPDATE_ON_DUPLICATE else "nothing"
