"""What one sees: a table that lives on a terminal, plain lines anywhere else."""

import sys

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from story import ms

COLOURS = {
    "waiting": "cyan", "rescheduled": "magenta", "queued": "blue",
    "ran": "green", "cancelled": "yellow", "failed": "red",
}  # fmt: skip


def screen():
    console = Console(highlight=False)
    if sys.stdout.isatty() and not console.is_dumb_terminal:
        return TerminalScreen(console)
    return PlainScreen()


class TerminalScreen:
    """A table, and below it each call with its answer."""

    def __init__(self, console):
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self):
        self._live.__enter__()
        return self

    def __exit__(self, *what):
        self._live.__exit__(*what)

    def update(self, show):
        self._live.update(Group(_clock(show), _table(show), Text(), *_calls(show)), refresh=True)


def _clock(show):
    return Text(f"\n{show.now:.1f} s since the start", style="dim")


def _table(show):
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("user", style="bold", min_width=5)
    table.add_column("what happens", min_width=16)
    table.add_column("due, s", justify="right", min_width=13)
    table.add_column("state", min_width=14)
    table.add_column("ran, s", justify="right", min_width=6)
    table.add_column("late", justify="right", min_width=6)
    for visit in show.visits:
        table.add_row(visit.user, visit.story, *_cells(show, visit))
    return table


def _cells(show, visit):
    if not visit.dues:
        return "", Text("not here yet", style="dim"), "", ""
    state = visit.state
    if state in ("waiting", "rescheduled"):
        left = max(0.0, show.since_start(visit.due) - show.now)
        state = f"{state:<7} {left:>4.1f} s"
    ran = late = "-" if visit.cancelled else ""
    if visit.told:
        ran, late = f"{show.since_start(visit.ran):.3f}", ms(visit.late)
    return _dues(show, visit), Text(state, style=COLOURS.get(visit.state, "")), ran, late


def _dues(show, visit):
    *old, due = (f"{show.since_start(due):.3f}" for due in visit.dues)
    text = Text("".join(f"{one} → " for one in old), style="dim")
    return text.append(due, style="not dim strike" if visit.cancelled else "not dim")


def _calls(show):
    for now, user, text, call in show.events:
        if call:
            yield Text.assemble((f"{now:6.1f} s  ", "dim"), (f"{user:<5}", "bold"), f" {text}")


class PlainScreen:
    """A line for each thing that happens."""

    def __init__(self):
        self._said = 0

    def __enter__(self):
        return self

    def __exit__(self, *what):
        pass

    def update(self, show):
        for now, user, text, _call in show.events[self._said :]:
            print(f"{now:7.3f} s  {user:<5} {text}", flush=True)
        self._said = len(show.events)
