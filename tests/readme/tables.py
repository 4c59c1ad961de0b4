"""The tables that come from the code, and the files that they stand in.

python -m tests.readme.tables    writes them anew
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from celery_delayq import errors
from celery_delayq.care.inconsistencies import KINDS
from celery_delayq.metrics.names import METRICS, Metric
from celery_delayq.settings import SETTINGS, Setting
from celery_delayq.store.keys import KEYS
from celery_delayq.store.scripts import load
from tests.readme.document import OPERATIONS, PACKAGE, Document

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table in Markdown; in its document it is known by its first row."""

    document: Document
    head: Row
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def written(self) -> str:
        """The text of its document, with this table in place of the one that is there."""
        first = self.text.partition("\n")[0]
        old = rf"^{re.escape(first)}\n(\|.*\n)*"
        text, count = re.subn(old, lambda _: self.text, self.document.text, flags=re.MULTILINE)
        assert count == 1, f"{self.document.name} has {count} tables that begin with {first}"
        return text


def tables() -> tuple[Table, ...]:
    return (
        Table(PACKAGE, ("Setting", "Default", "Allowed", "What it says"), _settings()),
        Table(PACKAGE, ("key", "type", "content"), _keys()),
        Table(PACKAGE, ("script", "what it does"), _scripts()),
        Table(PACKAGE, ("error", "is also", "what it means"), _errors()),
        Table(OPERATIONS, ("metric", "type", "label", "what it says"), _metrics()),
        Table(OPERATIONS, ("kind", "what is wrong", "what `check --repair` does"), _kinds()),
    )


def _kinds() -> tuple[Row, ...]:
    rows = ((name, kind.wrong, kind.repair) for name, kind in KINDS.items())
    return tuple(
        (f"`{name}`", wrong, does or "none; it is only reported") for name, wrong, does in rows
    )


def _settings() -> tuple[Row, ...]:
    return tuple(
        (f"`{one.key}`", _default(one), one.expected, one.says) for one in SETTINGS if one.public
    )


def _default(setting: Setting) -> str:
    number = isinstance(setting.default, (int, float)) and not isinstance(setting.default, bool)
    return f"`{setting.default!r}`{f' {setting.unit}' * number}"


def _keys() -> tuple[Row, ...]:
    words = ((name, *said.split(maxsplit=1)) for name, said in KEYS.items())
    return tuple((f"`{name}`", kind, content) for name, kind, content in words)


def _scripts() -> tuple[Row, ...]:
    headers = {name: re.search(r"--\[\[ (\w+): (.*)", one.text) for name, one in load().items()}
    return tuple((f"`{name}`", headers[name][2]) for name in sorted(headers))


def _errors() -> tuple[Row, ...]:
    found = [one for one in vars(errors).values() if inspect.isclass(one)]
    ours = [one for one in found if issubclass(one, errors.DelayQError)]
    return tuple((f"`{one.__name__}`", _bases(one), _first_line(one)) for one in ours)


def _metrics() -> tuple[Row, ...]:
    return tuple((f"`{one.exposed}`", one.kind, _label(one), one.says) for one in METRICS)


def _label(metric: Metric) -> str:
    values = ", ".join(f"`{value}`" for value in metric.values)
    return f"`{metric.label}`" * bool(metric.label) + f": {values}" * bool(values)


def _bases(error: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in error.__bases__)


def _first_line(error: type) -> str:
    return inspect.getdoc(error).partition("\n")[0].replace("``", "`")


if __name__ == "__main__":
    for table in tables():
        table.document.path.write_text(table.written(), encoding="utf-8")
