"""`MysqlDB()`: the database of the MYSQL_* settings, for a spider's own queries."""

from __future__ import annotations

from netspy.db.sqldb import SqlDB, project_settings
from netspy.sqlio.address import mysql_address


class MysqlDB(SqlDB):
    """MySQL or MariaDB; see SqlDB. What isn't given comes from the MYSQL_* settings."""

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        user: str | None = None,
        password: str | None = None,
        db: str | None = None,
        pool_size: int | None = None,
    ) -> None:
        """Raises ConfigError for a wrong value, or where no database is named."""
        settings = project_settings(
            MYSQL_HOST=host,
            MYSQL_PORT=port,
            MYSQL_USER=user,
            MYSQL_PASSWORD=password,
            MYSQL_DB=db,
            MYSQL_POOL_SIZE=pool_size,
        )
        super().__init__(mysql_address(settings), pool_size=settings.MYSQL_POOL_SIZE)
