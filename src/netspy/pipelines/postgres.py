"""PostgreSQL, by the POSTGRES_* settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netspy.pipelines.sql import SqlPipeline
from netspy.sqlio.address import postgres_address

if TYPE_CHECKING:
    from netspy.sqlio.address import SqlAddress
    from netspy.sqlio.dialects import OnConflict


class PostgresPipeline(SqlPipeline):
    """Stores rows in POSTGRES_DB on POSTGRES_HOST; otherwise as SqlPipeline."""

    def address(self) -> SqlAddress:
        """The database of the POSTGRES_* settings, or the URL given to the constructor."""
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
