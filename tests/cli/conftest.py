"""`celery -A … delayq …`, run in this process by click, on an app of the test's own."""

import signal
import sys
import types

import pytest
from celery.bin.celery import celery
from celery.bin.worker import worker
from click.testing import CliRunner

from celery_delayq.integration import workers
from tests.app.conftest import delayq_app, redis, redis_client, url

__all__ = ["delayq_app", "redis", "redis_client", "url"]

MODULE = "delayq_cli_project"


@pytest.fixture(autouse=True)
def no_workers(monkeypatch):
    """None runs in these tests, so nobody waits a second for answers."""
    monkeypatch.setattr(workers, "WAIT", 0.05)


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
        # Celery adds an app's options to this list for ever, for it expects one app in a process.
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


@pytest.fixture
def said(run):
    """The lines that a command says; it has to end well."""

    def said(*arguments, **options):
        result = run(*arguments, **options)
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    return said


@pytest.fixture
def printed(run):
    """The lines of its standard output alone, where it ends well."""

    def printed(*arguments, **options):
        result = run(*arguments, **options)
        assert result.exit_code == 0, result.output
        return result.stdout.splitlines()

    return printed


@pytest.fixture
def misused(run):
    """What a command says that has to be an error of usage: its last line."""

    def misused(*arguments, **options):
        result = run(*arguments, **options)
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code == 2, result.output
        return result.output.splitlines()[-1]

    return misused


@pytest.fixture
def refused(run):
    """The lines of a command that has to end with status 1, and without a traceback."""

    def refused(*arguments, **options):
        result = run(*arguments, **options)
        assert isinstance(result.exception, SystemExit), repr(result.exception)
        assert result.exit_code == 1, result.output
        return result.output.splitlines()

    return refused


@pytest.fixture
def before(monkeypatch):
    """Do something before each call of a method: ``before(ScannerSteps, "hand_over", print)``."""

    def put(owner, name, act):
        method = getattr(owner, name)

        def acting(self, *args, **options):
            act(self, *args)
            return method(self, *args, **options)

        monkeypatch.setattr(owner, name, acting)

    return put


@pytest.fixture
def sigint():
    """Ctrl-C does what it does in the foreground, wherever the tests run."""
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, was)


# What the tests of the doctor share.


@pytest.fixture
def look():
    """What the doctor finds: ``look(app, "rights")``; the lines of these questions."""
    patients = []

    def look(app, *names):
        # A leaf's, which tests of the kernel do without.
        from celery_delayq.care.doctor import AT_THE_BROKER, AT_THE_STORE, Patient

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
