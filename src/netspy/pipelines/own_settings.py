"""Settings that a pipeline is given by its constructor: `MysqlPipeline(host="db2")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from netspy.settings import check_value

if TYPE_CHECKING:
    from netspy.settings import Settings


def given(owner: str, **settings: Any) -> dict[str, Any]:
    """Those that are not None, checked. `owner` is for the message. Raises ConfigError for a wrong value."""
    return {name: check_value(name, value, owner) for name, value in settings.items() if value is not None}


def applied(settings: Settings, pipeline: Any) -> Settings:
    """What this pipeline is to go by: the spider's settings, and its own before them."""
    own = getattr(pipeline, "own_settings", None)
    return msgspec.structs.replace(settings, **own) if own else settings
