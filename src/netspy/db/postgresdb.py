"""`PostgresDB()`: the database of the POSTGRES_* settings, for a spider's own queries."""

from __future__ import annotations

from netspy.db.sqldb import SqlDB, project_settings
from netspy.sqlio.address import postgres_address


class PostgresDB(SqlDB):
    """PostgreSQL; see SqlDB. What isn't given comes from the POSTGRES_* settings."""

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
            POSTGRES_HOST=host,
            POSTGRES_PORT=port,
            POSTGRES_USER=user,
            POSTGRES_PASSWORD=password,
            POSTGRES_DB=db,
            POSTGRES_POOL_SIZE=pool_size,
        )
        super().__init__(postgres_address(settings), pool_size=settings.POSTGRES_POOL_SIZE)
