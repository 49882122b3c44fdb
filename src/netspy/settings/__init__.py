"""Every setting, once: name, type, default, unit and one sentence; and the loader that layers them.

Order, weakest first: defaults, the project's `setting.py` (what NETSPY_SETTING names, else the current folder's, else the
script's own), what `netspy.setting` was assigned, the class attribute `__custom_setting__`, NETSPY_* environment variables,
constructor keywords and command-line flags. The origin of each value is kept, so that `netspy settings` can show it.
"""

from netspy.settings.declared import FIELDS, LEGACY, NOT_BUILT, Settings
from netspy.settings.loading import (
    COMMAND_LINE,
    DEFAULT_ORIGIN,
    Loaded,
    ProjectSettings,
    in_use,
    load,
    project_file,
    read_project,
    set_script,
)
from netspy.settings.passwords import HIDDEN, display_value, hide_password, is_secret, without_passwords
from netspy.settings.values import base_type, check_value, from_text, is_path, meta, type_name

__all__ = [
    "COMMAND_LINE",
    "DEFAULT_ORIGIN",
    "FIELDS",
    "HIDDEN",
    "LEGACY",
    "NOT_BUILT",
    "Loaded",
    "ProjectSettings",
    "Settings",
    "base_type",
    "check_value",
    "display_value",
    "from_text",
    "hide_password",
    "in_use",
    "is_path",
    "is_secret",
    "load",
    "meta",
    "project_file",
    "read_project",
    "set_script",
    "type_name",
    "without_passwords",
]  # fmt: skip
