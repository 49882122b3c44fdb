"""MySQL and MariaDB, by the MYSQL_* settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netspy.pipelines.sql import SqlPipeline
from netspy.sqlio.address import mysql_address

if TYPE_CHECKING:
    from netspy.sqlio.address import SqlAddress
    from netspy.sqlio.dialects import OnConflict


class MysqlPipeline(SqlPipeline):
    """Stores rows in MYSQL_DB on MYSQL_HOST; otherwise as SqlPipeline.

    MySQL takes any unique key of the table for "the row is there".
    """

    def address(self) -> SqlAddress:
        """The database of the MYSQL_* settings, or the URL given to the constructor."""
        return super().address() if self.url else mysql_address(self.settings)

    def connections(self) -> int:
        """MYSQL_POOL_SIZE."""
        return self.settings.MYSQL_POOL_SIZE

    def on_conflict(self) -> OnConflict:
        """Update, unless MYSQL_UPDATE_ON_DUPLICATE is off."""
        return "update" if self.settings.MYSQL_UPDATE_ON_DUPLICATE else "nothing"
