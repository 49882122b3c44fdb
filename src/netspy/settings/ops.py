"""Settings of logs, progress and alerts."""

from __future__ import annotations

from typing import Annotated, Literal

from netspy.settings.declaring import described
from netspy.settings.stores import StoreSettings

_doc = described("ops")


class OpsSettings(StoreSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of `Settings`."""

    LOG_LEVEL: Annotated[
        Literal["TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL"],
        _doc("Least severe message shown."),
    ] = "INFO"
    LOG_FILE: Annotated[str | None, _doc("Also log to this file.", "path")] = None
    LOG_COLOR: Annotated[bool, _doc("Colours on a terminal; files never get any.")] = True
    LOG_ROTATION: Annotated[str, _doc("Size or time at which LOG_FILE is rotated.")] = "50 MB"
    LOG_RETENTION: Annotated[str, _doc("How long rotated log files are kept.")] = "10 days"
    METRICS_LOG_INTERVAL: Annotated[
        float, _doc("Between two progress lines when there is no terminal; 0 = none.", "s", ge=0)
    ] = 10.0
    PROGRESS: Annotated[
        Literal["auto", "panel", "lines", "off"],
        _doc("Progress display; auto: a panel on a terminal, else lines."),
    ] = "auto"
    WARNING_ENABLE: Annotated[bool, _doc("Call the spider's `on_alert` hook.")] = True
    WARNING_INTERVAL: Annotated[
        float, _doc("The same alert is not sent again within this time.", "s", ge=0)
    ] = 300.0
