"""PostgreSQL, by the POSTGRES_* settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netspy.pipelines.own_settings import given
from netspy.pipelines.sql import SqlPipeline
from netspy.sqlio.address import postgres_address

if TYPE_CHECKING:
    from netspy.sqlio.address import SqlAddress
    from netspy.sqlio.dialects import OnConflict


class PostgresPipeline(SqlPipeline):
    """Stores rows in POSTGRES_DB on POSTGRES_HOST; otherwise as SqlPipeline."""

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
        """`url`, or the POSTGRES_* settings of this pipeline. `db`: a database's name, or a PostgresDB: its address."""
        super().__init__(url)
        self._at: SqlAddress | None = getattr(db, "address", None)
        self.own_settings = given(
            "PostgresPipeline", POSTGRES_HOST=host, POSTGRES_PORT=port, POSTGRES_USER=user, POSTGRES_PASSWORD=password,
            POSTGRES_DB=db if self._at is None else None, POSTGRES_POOL_SIZE=pool_size,
        )  # fmt: skip

    def address(self) -> SqlAddress:
        """The database of the POSTGRES_* settings, or the URL given to the constructor."""
        if self._at is not None:
            return self._at
        return super().address() if self.url else postgres_address(self.settings)

    def connections(self) -> int:
        """POSTGRES_POOL_SIZE."""
        return self.settings.POSTGRES_POOL_SIZE

    def on_conflict(self) -> OnConflict:
        """POSTGRES_ON_CONFLICT."""
        return self.settings.POSTGRES_ON_CONFLICT

    def conflict_target(self) -> tuple[str, ...]:
        """POSTGRES_CONFLICT_TARGET."""
        return tuple(self.settings.POSTGRES_CONFLICT_TARGET)
