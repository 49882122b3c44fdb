"""What must not be seen in what is shown: a decision by names, since values don't tell."""

from __future__ import annotations

import re
from typing import Any

from netspy.settings import HIDDEN, without_passwords

_secret_name = re.compile(
    r"passw|passphrase|secret|token|api[-_]?key|private[-_]?key|credential|authorization|^auth$|cookie|session|webhook",
    re.IGNORECASE,
).search


def is_secret_name(name: str) -> bool:
    """Whether what is called so is most likely a secret: a header, a field, a setting."""
    return _secret_name(name) is not None


def mask(value: Any, name: str = "") -> Any:
    """A copy of `value`, whose name is `name`, with *** in the place of secrets.

    Those are: values under a secret name (of mappings, the values and not the names), passwords of URLs, and
    parameters such as `token=…` inside text. Pairs, as headers may be given, are read as name and value.
    """
    if name and value and is_secret_name(name):
        return dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else HIDDEN
    if isinstance(value, str):
        return without_passwords(value)
    if isinstance(value, dict):
        return {key: mask(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        if name == "cert":  # (certificate, key, password of the key)
            return [*value[:2], *[HIDDEN] * len(value[2:])]
        if name == "headers":  # what is no pair can't be told from a value
            return [mask(inner) if isinstance(inner, list | tuple) else HIDDEN for inner in value]
        if len(value) == 2 and isinstance(value[0], str):
            return [value[0], mask(value[1], value[0])]
        return [mask(inner) for inner in value]
    return value
