"""The README's table of settings, from their declarations.

python -m tests.readme.settings_table
"""

import sys

from celery_delayq.settings import SETTINGS, Setting

HEAD = ("Setting", "Default", "Allowed", "What it says")


def table() -> str:
    """The table in Markdown, a row for each setting in the order of declaration."""
    rows = [HEAD, ("---",) * len(HEAD), *map(_row, SETTINGS)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(setting: Setting) -> tuple[str, ...]:
    default = f"`{setting.default!r}`"
    if isinstance(setting.default, (int, float)) and not isinstance(setting.default, bool):
        default += f" {setting.unit}"
    return f"`{setting.key}`", default, setting.expected, setting.says


if __name__ == "__main__":
    sys.stdout.write(table())
