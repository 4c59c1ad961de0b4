"""The tables and other texts that are written from the code, and the files that contain them.

python -m tests.readme.tables    writes them anew
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any

import click

from celery_delayq import DelayQ, DelayQTask, ScheduledResult, ScheduledTask, signals
from celery_delayq.contrib.care import doctor
from celery_delayq.contrib.metrics.names import Metric, alerts, metrics
from celery_delayq.core import errors
from celery_delayq.core.scheduling.options import OPTIONS
from celery_delayq.core.settings import SETTINGS, Setting
from celery_delayq.core.store.keys import KEYS
from celery_delayq.core.text import lasting
from celery_delayq.operations import health, typed_times
from celery_delayq.operations.actions import ACTIONS, Action
from celery_delayq.operations.cli import delayq
from celery_delayq.operations.selection import RewritableSelection
from tests.app.options_of_celery import IN_MESSAGE, OF_CELERY, THE_SAME
from tests.readme.document import ROOT, Document, page
from tests.store import who_stays

Row = tuple[str, ...]
PACKAGE = ROOT / "celery_delayq"
#: Options of commands that the page describes once, and the filters of tasks.
SHARED_OPTIONS = {
    *("--json", "--help", "--utc", "--local", "--yes", "--dry-run", "--limit", "--all"),
    *("--key", "--if-revision"),
    *("--tag", "--task", "--queue", "--state", "--dead", "--overdue"),
    *("--due", "--due-from", "--due-before"),
}
# The order in which to read the core; other files come behind them.
READING = (
    *("integration/delayq", "services", "settings", "leaves", "hooks"),
    *("clock", "scheduling/options", "integration/apply_async", "scheduling/intercept"),
    *("message/outgoing", "message/headers", "scheduling/writing", "integration/results"),
    *("store/keys", "store/record", "store/entries", "store/schedule", "store/calls"),
    *("store/scripts", "servers/connection", "servers/pool"),
    *("tasks/scheduled_task", "tasks/reading", "store/lookup", "store/listing", "tasks/changing"),
    *("store/values", "store/changes", "tasks/selection", "store/selection"),
    *("handover/scanner", "store/delivery", "store/wakeup", "handover/relay"),
    "handover/publishers",
)


@dataclass(frozen=True)
class Table:
    """A table in Markdown; its first row identifies it in its document."""

    document: Document
    head: Row
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def written(self) -> str:
        """The text of its document, with this table in place of the present one."""
        first = self.text.partition("\n")[0]
        old = rf"^{re.escape(first)}\n(\|.*\n)*"
        text, count = re.subn(old, lambda _: self.text, self.document.text, flags=re.MULTILINE)
        assert count == 1, f"{self.document.name} has {count} tables that begin with {first}"
        return text


@dataclass(frozen=True)
class Passage:
    """A part of a file, between the texts before and behind it."""

    document: Document
    before: str
    text: str
    behind: str = ""

    def written(self) -> str:
        """The text of its file, with this part in place of the present one."""
        head, found, rest = self.document.text.partition(self.before)
        assert found, f"{self.document.name} has no {self.before!r}"
        _, found, tail = rest.partition(self.behind) if self.behind else ("", "", "")
        assert found == self.behind, f"{self.document.name} has no {self.behind!r} behind it"
        return head + self.before + self.text + self.behind + tail


def texts() -> tuple[Table | Passage, ...]:
    """All that is written from the code."""
    return (*tables(), *_passages())


def _passages() -> Iterator[Passage]:
    """What repeats the checks: the alerts, their sections of the runbook, what `health` says."""
    rules = "".join(map(_rule, alerts()))
    yield Passage(Document("celery_delayq/contrib/metrics/alerts.yml"), "    rules:\n", rules)
    for one in alerts():
        yield Passage(page("runbook"), f"\n## {one.name}\n\n", _in_words(one), "\n\n")
    yield from _lines()
    yield from _lists()
    yield Passage(page("reference/api"), "in a thread: ", _awaited(), ".\n")
    of_tasks = ", ".join(f"`{name}`" for name, one in OPTIONS.items() if not one.of_tasks)
    yield Passage(page("reference/options"), "all but ", of_tasks, ".\n")
    wrong = [check.wrong for check in health.quick()]
    filled = [
        textwrap.fill(f"- {one};", 100, initial_indent="    ", subsequent_indent="      ")
        for one in wrong
    ]
    yield Passage(
        Document("celery_delayq/operations/health.py"),
        "    It reports a problem if:\n\n",
        "\n".join([*filled, "    - the store cannot be read."]),
        "\n\n    A paused task",
    )
    yield Passage(
        Document("celery_delayq/operations/cli/operate.py"),
        "if there is one.\n\n",
        textwrap.fill(
            f"Problems are: {'; '.join(wrong)}; the store cannot be read.",
            100,
            initial_indent="    ",
            subsequent_indent="    ",
        ),
        "\n\n    So is a queue",
    )


def _lists() -> Iterator[Passage]:
    """The lists of the reference: names, and what each says."""
    api, errors_page, metrics_page = map(
        page, ("reference/api", "reference/errors", "reference/metrics")
    )
    for title, rows, behind in (
        ("Tasks and signatures", _members(DelayQTask), "\n## "),
        ("`DelayQ`", _members(DelayQ), "\n## "),
        ("Results", _members(ScheduledResult, besides=DelayQ), "\nAnd "),
        ("Selections", _members(RewritableSelection), "\n## "),
        (
            "Tasks that you read\n\nEach has `id`, `due`, `created` and `state`, and:",
            _fields(ScheduledTask) + _members(ScheduledTask),
            "",
        ),
    ):
        yield Passage(api, f"## {title}\n\n", _list(rows), behind)
    yield Passage(
        page("inside/stored-format"), "No key expires.\n\n", _list(_keys()), "\nThe layout"
    )
    yield Passage(page("inside/house"), "the way out.\n\n", _core(), "\n## ")
    yield Passage(errors_page, "as well:\n\n", _list(_errors()), "\n## ")
    yield Passage(page("reference/signals"), "it brings:\n\n", _list(_signals()), "\nReal ")
    yield Passage(
        page("reference/options"), "in a scheduled task:\n\n", _list(_of_celery()), "\nAll others"
    )
    yield Passage(errors_page, "errors:\n\n", _list(_messages()), "\nWarnings")
    yield Passage(page("reference/cli"), "examples.\n\n", _list(_commands()), "\n```")
    for kind, behind in (("gauge", "\n## "), ("counter", "\n## "), ("histogram", "\n## ")):
        title = f"## {kind.capitalize()}s\n\n"
        yield Passage(metrics_page, title, _list(_metrics(kind)), behind)
    yield Passage(
        page("reference/options"), "raises `InvalidOption`.\n\n", _list(_options()), "\n## "
    )


def _lines() -> Iterator[Passage]:
    """The lines of `health`, and those of the doctor alone."""
    own = [one for one in checks() if isinstance(one, doctor.Question)]
    watching = page("operate/watching")
    yield Passage(watching, "the page have these:\n\n", _checks(health.quick()), "\nThe doctor ")
    yield Passage(watching, "The doctor alone has these:\n\n", _checks(own), "\n## ")


def _list(rows: Iterable[Row]) -> str:
    """A list in Markdown."""
    return "".join(f"- {': '.join(row)}\n" for row in rows)


def _of_celery() -> tuple[Row, ...]:
    """Celery's options that differ in a scheduled task; all others do what they always do."""
    return tuple(
        (", ".join(f"`{name}`" for name in names.split()), said)
        for names, said in OF_CELERY.items()
        if said not in (IN_MESSAGE, THE_SAME)
    )


def _rule(alert: health.Alert) -> str:
    """An alert as a rule of Prometheus."""
    summary = alert.summary
    if "by (job" in alert.when:
        summary = f"{summary.removesuffix('.')} ({{{{ $labels.job }}}})."
    lasts = f"        for: {alert.lasts}\n" if alert.lasts else ""
    return (
        f"      - alert: {alert.name}\n"
        f"        expr: {alert.when}\n"
        f"{lasts}"
        f"        labels: {{severity: {alert.severity}}}\n"
        "        annotations:\n"
        f"          summary: {_scalar(summary)}\n"
        f"          description: {_scalar(alert.description)}\n"
        f"          runbook_url: {page('runbook').name}#{alert.section}\n"
        + "\n"
        * (alert != alerts()[-1])
    )


def _scalar(text: str) -> str:
    """A text in YAML."""
    return json.dumps(text) if text[0] in "`{" or ": " in text else text


def _in_words(alert: health.Alert) -> str:
    """What an alert says is wrong, without a value."""
    bound = lasting(float(alert.when.rpartition(" ")[2])) if "humanize" in alert.summary else ""
    words = {
        "{{ $value | humanizeDuration }}": f"more than {bound}",
        "{{ $labels.error }}": "an error",
        "{{ $value }}": "some",
    }
    said = alert.summary
    for value, instead in words.items():
        said = said.replace(value, instead)
    return said[0].upper() + said[1:]


def tables() -> tuple[Table, ...]:
    return (
        Table(
            page("reference/settings"),
            ("setting", "default", "allowed", "meaning"),
            _settings(),
        ),
        Table(
            page("guide/change"),
            ("method", "what it does", "undo"),
            tuple(map(_change, ACTIONS.values())),
        ),
        Table(page("guide/keys"), who_stays.HEAD, (*who_stays.table(),)),
        Table(page("guide/times"), ("you type", "it means"), _typed_times()),
    )


def _change(action: Action) -> Row:
    """A change, and whether an undo brings its tasks back."""
    return f"`{action.name}`", action.says, "yes" if action.undone else ""


def _typed_times() -> tuple[Row, ...]:
    return tuple(
        (
            ", ".join(f"`{each}`" for each in one.examples),
            one.means + f"; only for {one.only_for}" * bool(one.only_for),
        )
        for one in typed_times.FORMS
    )


def checks() -> list[health.Check[Any]]:
    """The doctor's checks in the order of their lines, with those of `health` among them."""
    each = [one for one in doctor.AT_THE_STORE if one.each]
    once = [one for one in doctor.AT_THE_STORE if not one.each]
    found: dict[str, health.Check[Any]] = {}
    for one in (*each, *health.quick(), *once, *doctor.AT_THE_BROKER):
        found.setdefault(one.name, one)
    return [*found.values()]


def _checks(of: Iterable[health.Check[Any]]) -> str:
    """What is wrong if a check finds a problem, and what it needs; then the runbook's section."""
    rows = ((f"**{one.name}**", f"{one.wrong}{_given(one)}{_section(one.section)}") for one in of)
    return _list(rows)


def _given(check: health.Check[Any]) -> str:
    """The options of `health` that say how much is allowed, or the rights of the doctor's user."""
    needs = (check.needs or check.rights) if isinstance(check, doctor.Question) else ""
    given = f"needs `{needs}`" if needs else ", ".join(map(_allowed, check.bounds))
    return (f" ({given})" if given else "") + (" → " if check.section else "")


def _allowed(bound: str) -> str:
    return f"`--max-{bound}`, {getattr(health.Bounds(), bound):g} by default"


def _section(anchor: str) -> str:
    """A link to a section of the runbook."""
    if not anchor:
        return ""
    [title] = (title for title, there in page("runbook").sections if there == anchor)
    return f"[{title}](../runbook.md#{anchor})"


def _settings() -> tuple[Row, ...]:
    return tuple(
        (f"`{one.key}`", f"`{one.default!r}`", _allowed_for(one), one.says) for one in SETTINGS
    )


def _options() -> tuple[Row, ...]:
    return tuple((f"`{name}`", one.says) for name, one in OPTIONS.items())


def _signals() -> tuple[Row, ...]:
    """Each signal with what it brings, as the docstring of their module has it."""
    text = re.sub(r"\n {20,}", " ", str(signals.__doc__))
    rows = re.findall(r"^``(\w+)`` +(.*)", text, re.MULTILINE)
    return tuple((f"`{name}`", brings.replace("``", "`")) for name, brings in rows)


def _allowed_for(setting: Setting) -> str:
    """The values that a setting takes, in fewer words than an error has."""
    number = r"a (?:whole )?number(?: of)?([a-z ]*?) from ([\d.]+) to (\d+)"
    return re.sub(number, r"\2 to \3\1", setting.expected)


def _keys() -> tuple[Row, ...]:
    words = ((name, *said.split(maxsplit=1)) for name, said in KEYS.items())
    return tuple((f"`{name}` ({kind})", content) for name, kind, content in words)


def _core() -> str:
    """A line for each file of the core that a reader of it reads; then the names of the others."""
    core = PACKAGE / "core"
    files = [path.relative_to(core) for path in core.rglob("*.py") if path.stem != "__init__"]
    others = sorted({str(path.with_suffix("")) for path in files} - {*READING})
    read = _list((f"`{name}.py`", _module(core / f"{name}.py")) for name in READING)
    rest = ", ".join(f"`{name}.py`" for name in others)
    return f"{read}\n{textwrap.fill(f'Those call {rest}.', 100, break_on_hyphens=False)}\n"


def _module(path: Path) -> str:
    """The first sentence of a module's docstring."""
    return _first_sentence(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")


def _errors() -> tuple[Row, ...]:
    found = [one for one in vars(errors).values() if inspect.isclass(one)]
    ours = [one for one in found if issubclass(one, errors.DelayQError)]
    return tuple((_with_bases(one), _first_sentence(one.__doc__)) for one in ours)


def _metrics(kind: str) -> tuple[Row, ...]:
    """The metrics of one kind, each with its label."""
    return tuple(
        (f"`{one.exposed}{_label(one)}`", _said(one)) for one in metrics() if one.kind == kind
    )


def _label(metric: Metric) -> str:
    return f"{{{metric.label}}}" if metric.label else ""


def _said(metric: Metric) -> str:
    values = ", ".join(f"`{value}`" for value in metric.values)
    return f"{metric.says}; {values}" if values else metric.says


def _with_bases(error: type) -> str:
    """An error's name, and the classes that it also is an instance of."""
    bases = [base for base in error.__bases__ if base is not errors.DelayQError]
    named = ", ".join(f"`{base.__name__}`" for base in bases if base is not Exception)
    return f"`{error.__name__}`" + f" ({named})" * bool(named)


def _commands() -> tuple[Row, ...]:
    """Each command with its own options: filters, and options of all, are described once."""
    found = ((name, delayq.get_command(None, name)) for name in delayq.list_commands(None))
    return tuple((f"`{name}`{_options_of(one)}", _first_sentence(one.help)) for name, one in found)


def _options_of(command: click.Command) -> str:
    names = [max(one.opts, key=len) for one in command.params if isinstance(one, click.Option)]
    own = ", ".join(f"`{name}`" for name in names if name not in SHARED_OPTIONS)
    return f" ({own})" if own else ""


def _messages() -> tuple[Row, ...]:
    """The messages that the package logs as errors, in the order of its files."""
    paths = sorted(PACKAGE.rglob("*.py"))
    found = dict.fromkeys(one for path in paths for one in _messages_of(path))
    return tuple((f"`{message}`", *_help_for(message)) for message in found)


def _help_for(message: str) -> Iterator[str]:
    """The section of the runbook for a message that is logged as an error."""
    sections = {
        " is dead: ": "delayqdead",
        "thread": "a-thread-has-ended-what-now",
        "lost its data": "delayqemptied",
        "rule %s": "delayqrules",
    }
    return (_section(anchor) for part, anchor in sections.items() if part in message)


def _messages_of(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    if not re.search(r"\.(error|critical)\(", text):
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="error" | "critical"),
                args=[ast.Constant(value=str(message)), *_],
            ) if re.search(r"\w{3}", message):
                yield message


def _members(owner: type, besides: type = type) -> tuple[Row, ...]:
    """The public methods and properties of a class, with their arguments.

    Without those to await, and without methods that *besides* has as well.
    """
    found = {
        name: one
        for base in reversed(owner.__mro__)
        if base.__module__.startswith("celery_delayq")
        for name, given in vars(base).items()
        for one in [getattr(base, name)]
        if not isinstance(given, classmethod)
        if not name.startswith("_") and (callable(one) or isinstance(one, property))
    }
    said = {
        name: text
        for base in owner.__mro__
        if base.__doc__
        for name, text in _attributes(base).items()
    }
    return tuple(
        (f"`{_call(name, one)}`", _first_sentence(one.__doc__ or said[name]))
        for name, one in found.items()
        if not (name[0] == "a" and name[1:] in found)
        if not (callable(one) and hasattr(besides, name))
    )


def _awaited() -> str:
    """The methods that an event loop awaits."""
    owners = (DelayQTask, DelayQ, RewritableSelection)
    names = [name for owner in owners for name in dir(owner) if hasattr(owner, name[1:])]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names) if name[0] == "a")


def _call(name: str, member: Any) -> str:
    if not callable(member):
        return name
    given = inspect.signature(member).parameters.values()
    own = [one for one in given if one.name not in ("self", "delayq")]
    bare = [one.replace(annotation=Parameter.empty) for one in own]
    return f"{name}{inspect.Signature(bare)}".replace("=as it is", "=…")


def _fields(owner: type) -> tuple[Row, ...]:
    return tuple((f"`{name}`", _first_sentence(text)) for name, text in _attributes(owner).items())


def _attributes(owner: type) -> dict[str, str]:
    """The attributes in the docstring of a class, with their descriptions."""
    _, _, said = inspect.getdoc(owner).partition("Attributes:\n")
    return dict(re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", said, re.MULTILINE | re.DOTALL))


def _first_sentence(text: str) -> str:
    whole = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    plain = re.sub(r":\w+:", "", whole).replace("``", "`")
    return re.match(r".*?\.(?= |$)|.*", plain)[0]


if __name__ == "__main__":
    for text in texts():
        text.document.path.write_text(text.written(), encoding="utf-8")
