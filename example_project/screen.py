"""The output: a line for each event; on a terminal, the waiting tasks below them.

In the scene of the latest ten, a wide terminal shows their page beside that.
"""

import re
import sys
import textwrap
from datetime import datetime, timezone

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from scenes.app import delayq
from scenes.latest import page

COLOURS = {
    "topup": "cyan", "reading": "green", "welcome": "yellow",
    "form": "magenta", "lock": "red", "latest": "blue",
}  # fmt: skip
WIDE = 96  # columns
COMMAND = "./example_project/run"
ROWS = 10  # of waiting tasks


def screen():
    console = Console(highlight=False)
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        return TerminalScreen(console)
    return PlainScreen(console)


class SideBySide:
    """Two columns: the events of a plain app, and of one with celery_delayq."""

    def __init__(self):
        self._console = Console(highlight=False, record=True)
        self._line(Text(), "plain Celery, countdown", "celery_delayq, delay_for", "bold")

    def heading(self, title):
        self._console.print(Text(f"\n{title}", style="bold cyan"))

    def tell(self, now, *texts):
        head = Text(f"{now:5.1f} s", style="dim")
        if len(texts) == 1:
            self._console.print(head.append(f"  {texts[0]}", "not dim yellow"))
        else:
            self._line(head, *texts)

    def save(self, path):
        """Write the output as an SVG, without external fonts."""
        style = re.sub(r"@font-face {{.*?}}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
        path.write_text(self._console.export_svg(title=COMMAND, code_format=style), "utf-8")

    def _line(self, head, of_plain, of_delayed, style=""):
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_column(width=7)
        width = (min(self._console.width, WIDE) - 11) // 2
        row.add_column(width=width)
        row.add_column(width=width)
        row.add_row(head, Text(of_plain, style), Text(of_delayed, style))
        self._console.print(row)


class PlainScreen:
    """A line for each event."""

    def __init__(self, console):
        self._console = console
        self._told = 0

    def __enter__(self):
        return self

    def __exit__(self, *what):
        pass

    def update(self, stage):
        for now, scene, text in stage.events[self._told :]:
            head = Text.assemble((f"{now:5.1f} s  ", "dim"), (f"{scene:<9}", COLOURS[scene]))
            self._tell(head.append(text))
        self._told = len(stage.events)

    def heading(self, story):
        self._console.print()
        title = Text(story.title, style=f"bold {COLOURS[story.name]}")
        where = f"  scenes/{story.name}.py, {story.scale}"
        self._console.print(title.append(where, "not bold dim"))

    def summary(self, story):
        """Print the results."""
        text = textwrap.fill(story.summary(), min(self._console.width, WIDE))
        self._console.print(Text(text[0].upper() + text[1:]))

    def _tell(self, line):
        self._console.print(line, soft_wrap=True)


class TerminalScreen(PlainScreen):
    """The same lines, cut to the terminal's width, and below them the waiting tasks."""

    def __init__(self, console):
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self):
        self._live.__enter__()
        return self

    def __exit__(self, *what):
        self._live.__exit__(*what)

    def update(self, stage):
        super().update(stage)
        below = Table.grid(padding=(0, 3, 0, 0))
        wide = self._console.width >= WIDE
        below.add_row(_waiting(stage), *([_latest()] if wide else []))
        self._live.update(below, refresh=True)

    def _tell(self, line):
        self._console.print(line, no_wrap=True, overflow="ellipsis")


def _waiting(stage):
    tasks = list(delayq.tasks(limit=ROWS + 1))
    lines = [_countdown(task) for task in tasks[:ROWS]]
    if len(tasks) > ROWS:
        lines.append(Text("        and more", style="dim"))
    return _block(f"waits in Redis, {stage.now:.0f} s after the start", lines, 53)


def _countdown(task):
    _, scene, name = task.task.split(".")
    left = max(0.0, (task.due - datetime.now(timezone.utc)).total_seconds())
    call = f"{name}({', '.join(map(repr, task.args))})"
    return Text.assemble((f"{left:4.1f} s  ", "bold"), (call, COLOURS[scene]))


def _latest():
    return _block("the page of the latest ten", [Text(line) for line in page()], 38)


def _block(heading, lines, width):
    table = Table.grid()
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=width, min_width=width)
    table.add_row("")
    table.add_row(Text(heading, style="dim"))
    for line in lines:
        table.add_row(line)
    return table
