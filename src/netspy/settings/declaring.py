"""How a setting is declared: with a sentence, its unit and the bounds of its value."""

from __future__ import annotations

from typing import Protocol

from msgspec import Meta


class Describe(Protocol):
    """Makes the description of one setting."""

    def __call__(
        self, text: str, unit: str = "", *, ge: float | None = None, gt: float | None = None
    ) -> Meta:
        """A sentence, its unit, and the bounds of its value."""


def described(group: str) -> Describe:
    """What describes the settings of one group, a chapter of docs/settings.md."""

    def describe(text: str, unit: str = "", *, ge: float | None = None, gt: float | None = None) -> Meta:
        extra = {"unit": unit, "group": group}
        if gt is not None:
            return Meta(description=text, extra=extra, gt=gt)
        return (
            Meta(description=text, extra=extra) if ge is None else Meta(description=text, extra=extra, ge=ge)
        )

    return describe
