"""`celery -A … delayq …`, run in this process by click, on an app of the test's own."""

import os
import signal
import subprocess
import sys
import types

import pytest
from celery.bin.celery import celery
from celery.bin.worker import worker
from click.testing import CliRunner

from tests.app.conftest import alive, delayq_app, redis, redis_client, to_workers, url
from tests.support.waiting import PATIENCE

__all__ = ["alive", "delayq_app", "redis", "redis_client", "to_workers", "url"]

MODULE = "proj"  # as in the texts


@pytest.fixture(autouse=True)
def no_workers(limits):
    """No worker runs in these tests, so do not wait a second for answers."""
    limits(workers_answer_s=0.05)


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url)


@pytest.fixture
def project(monkeypatch):
    """Let ``-A`` find an app: ``project(app)``."""

    def put(app):
        module = types.ModuleType(MODULE)
        module.app = app
        monkeypatch.setitem(sys.modules, MODULE, module)
        # Celery never removes an app's options from this list, as it expects one app in a process.
        monkeypatch.setattr(worker, "params", list(worker.params))

    return put


@pytest.fixture
def run(app, project):
    """Run a command: ``run("list", "--json")``; its output, both streams in one, and its status."""

    def run(*arguments, app=app, stdin=None):
        project(app)
        words = ["-A", MODULE, "delayq", *arguments]
        return CliRunner().invoke(celery, words, prog_name="celery", input=stdin)

    return run


def ended(result, status):
    """The result, which must have this status, and no traceback."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def said(run):
    """The lines that a command prints; it has to end well."""
    return lambda *words, **more: ended(run(*words, **more), 0).output.splitlines()


@pytest.fixture
def printed(run):
    """Only the lines of its standard output, if it ends well."""
    return lambda *words, **more: ended(run(*words, **more), 0).stdout.splitlines()


@pytest.fixture
def misused(run):
    """The last line of a command that must end with a usage error."""
    return lambda *words, **more: ended(run(*words, **more), 2).output.splitlines()[-1]


@pytest.fixture
def refused(run):
    """The lines of a command that has to end with status 1."""
    return lambda *words, **more: ended(run(*words, **more), 1).output.splitlines()


SHOP = """
from celery import Celery
from celery_delayq import DelayQ
app = Celery("shop", broker={url!r})
app.conf.update({conf})
DelayQ(app)
"""


@pytest.fixture
def shop(url, tmp_path):
    """Start ``celery -A shop delayq …`` in a process of its own: ``shop("list", stdout=file)``."""

    def start(*words, conf=None, env=None, before=(), **options):
        made = SHOP.format(url=url, conf={"delayq_timeout": PATIENCE, **(conf or {})})
        (tmp_path / "shop.py").write_text(made, encoding="utf-8")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "encoding": "utf-8"}
        path = os.pathsep.join([str(tmp_path), *sys.path])
        return subprocess.Popen(
            [*before, sys.executable, "-m", "celery", "-A", "shop", "delayq", *words],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": path, **(env or {})},
            **{**pipes, **options},
        )  # fmt: skip

    return start


@pytest.fixture
def on_a_terminal(monkeypatch):
    """Pretend that the standard input is a terminal; click's runner passes the typed input."""
    is_stdin = lambda stream: stream.name == "<stdin>"  # noqa: E731
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", is_stdin, raising=False)


@pytest.fixture
def sigint():
    """Let Ctrl-C work as in the foreground, even if the tests run in the background."""
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, was)


# Helpers for the tests of the doctor.


@pytest.fixture
def patient_doctor(limits):
    """To the doctor, a broker that is starved for seconds still answers."""
    limits(doctor_connect_s=PATIENCE, doctor_answer_s=PATIENCE, broker_connect_s=PATIENCE)


@pytest.fixture
def look(patient_doctor):
    """The doctor's lines for these questions: ``look(app, "rights")``."""
    patients = []

    def look(app, *names):
        # It belongs to a leaf, and tests of the core run without it.
        from celery_delayq.contrib.care.doctor import AT_THE_BROKER, AT_THE_STORE, Patient

        patients.append(Patient(app.delayq.services))
        asked = [one for one in (*AT_THE_STORE, *AT_THE_BROKER) if one.name in names]
        assert len(asked) == len(names)
        return [line for one in asked for line in one.lines(patients[-1])]

    yield look
    for one in patients:
        one.close()


@pytest.fixture
def as_user(redis_server, delayq_app, redis):
    """An app whose store's user has these rights: ``as_user("+@all", "-info")``."""

    def make(*rule, **conf):
        user = ["u", "reset", "on", ">p", "~*", "&*", *rule]
        redis.execute_command("ACL", "SETUSER", *user)
        return delayq_app(redis_server.url().replace("//", "//u:p@"), **conf)

    return make
