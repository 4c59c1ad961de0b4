"""A name that a library lacks turns a feature off; if messages need it, nothing is scheduled."""

import subprocess
import sys
from functools import reduce
from importlib import import_module, metadata
from types import SimpleNamespace
from unittest import mock

import pytest
from celery.app.amqp import AMQP
from celery.worker.control import Panel
from kombu import Connection

from celery_delayq import Defer, DelayQ
from celery_delayq.contrib.adoption.adopting import AdoptingStep
from celery_delayq.contrib.control import remote
from celery_delayq.contrib.copies import GuardingStep
from celery_delayq.core import libraries
from celery_delayq.core.handover.publishers import OneByOne, Pushing, publisher_for
from celery_delayq.core.libraries import LEANS_ON, MESSAGES, TRIED, Feature, check_messages, works
from celery_delayq.core.message.outgoing import Route
from celery_delayq.errors import LibraryChanged
from tests.app.support import FAR

pytestmark = pytest.mark.libraries


@pytest.fixture(autouse=True)
def _anew():
    """Clear all caches, as in a process that has not checked any name yet."""
    check_messages.cache_clear()
    works.cache_clear()
    yield
    check_messages.cache_clear()
    works.cache_clear()


def owners_of(name):
    """The classes, the module or the object that define the name."""
    module, _, path = name.partition(":")
    *path, last = path.split(".")
    owner = reduce(getattr, path, import_module(module))
    mro = [one for one in getattr(owner, "__mro__", (owner,)) if one is not object]
    return [one for one in mro if last in vars(one)], last


@pytest.fixture
def take_away(monkeypatch):
    """Take a name away: ``take_away("celery.app.amqp:AMQP.Router")``."""

    def take(name):
        owners, last = owners_of(name)
        for owner in owners:
            monkeypatch.delattr(owner, last)

    return take


# Parts that make messages.


def test_the_installed_libraries_have_all_names():
    check_messages()
    assert [feature for feature in Feature if not works(feature)] == []


@pytest.mark.parametrize("name", MESSAGES)
def test_without_a_name_that_messages_need_no_delayq_is_made(make_app, take_away, name):
    app = make_app()
    take_away(name)

    with pytest.raises(LibraryChanged) as raised:
        DelayQ(app)

    installed = ", ".join(f"{name} {metadata.version(name)}" for name in TRIED)
    tried = ", ".join(f"{name} {old} to {new}" for name, (old, new) in TRIED.items())
    assert str(raised.value) == (
        f"{name} is gone: installed are {installed}; celery_delayq was tried with {tried}; "
        "install one of these, or a later celery_delayq"
    )


def _other(self, other):
    """A version of a function that a library may have changed."""


@pytest.mark.parametrize("name", [name for name, takes in MESSAGES.items() if takes])
def test_with_other_arguments_of_a_function_no_delayq_is_made(make_app, monkeypatch, name):
    app = make_app()
    [owner, *_], last = owners_of(name)
    monkeypatch.setattr(owner, last, _other)

    with pytest.raises(LibraryChanged) as raised:
        DelayQ(app)

    takes = MESSAGES[name].replace(" ", ", ")
    assert raised.value.problems == [f"{name} does not take ({takes})"]


def test_a_tracer_may_wrap_what_makes_messages(make_app, monkeypatch):
    monkeypatch.setattr(AMQP, "as_task_v2", mock.Mock())

    DelayQ(make_app()).close()


def test_the_libraries_are_looked_at_once_in_a_process(make_app, take_away):
    check_messages()
    take_away("kombu:Queue.as_dict")

    DelayQ(make_app()).close()


WITHOUT = """
import celery
import sys
from functools import reduce
from importlib import import_module

app = celery.Celery()
for where in sys.argv[1:]:
    module, _, path = where.partition(":")
    *path, name = path.split(".")
    owner = reduce(getattr, path, import_module(module))
    for one in getattr(owner, "__mro__", [owner]):
        if one is not object and name in vars(one):
            delattr(one, name)
"""
REFUSED = """
from celery_delayq import DelayQ
from celery_delayq.errors import LibraryChanged
try:
    DelayQ(app)
except LibraryChanged as error:
    print(*[one.partition(" ")[0] for one in error.problems])
"""
HELPED = """
import celery.bin.base
from click.testing import CliRunner
from celery_delayq.operations.cli import delayq
print(CliRunner().invoke(delayq, ["list", "--help"]).output)
"""


def ran_without(names, code):
    command = [sys.executable, "-c", WITHOUT + code, *names]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_no_name_of_a_library_is_needed_to_import_the_package():
    ran = ran_without(MESSAGES, REFUSED)

    assert ran.stderr == ""
    assert set(ran.stdout.split()) == set(MESSAGES)


# Parts that single features need.


@pytest.mark.parametrize("feature", Feature, ids=lambda feature: feature.name)
def test_without_any_of_its_names_a_feature_is_off_with_one_warning(monkeypatch, caplog, feature):
    for name in LEANS_ON[feature]:
        library = name.partition(".")[0].partition(":")[0]
        monkeypatch.setattr(libraries, "_is_gone", lambda one, gone=name: one == gone)
        works.cache_clear()
        caplog.clear()

        assert not works(feature)
        assert not works(feature)

        installed = f"{library} {metadata.version(library)}"
        assert caplog.messages == [f"{feature.value}: off, as {installed} lacks {name}"]


def consumer_of(app):
    """A worker's consumer, with the parts that its steps read when they are created."""
    return SimpleNamespace(app=app, update_strategies=print, task_consumer=None)


@pytest.mark.parametrize(
    ("step", "name"),
    [
        (AdoptingStep, "celery.worker.state:revoked_stamps"),
        (GuardingStep, "celery.worker.consumer.consumer:Consumer.update_strategies"),
    ],
)
def test_a_worker_gives_celery_each_message_at_once(app, take_away, step, name):
    consumer = consumer_of(app)
    step(consumer)
    assert consumer.update_strategies is not print
    take_away(name)
    works.cache_clear()

    consumer = consumer_of(app)
    step(consumer)
    assert consumer.update_strategies is print


def test_a_django_project_s_tasks_are_plain(make_app, take_away):
    take_away("celery.fixups.django:DjangoFixup")
    app = make_app()
    app._fixups = [object()]

    assert DelayQ(app).app is app


def test_inspect_is_celery_s_own(make_app, take_away):
    take_away("celery.app.control:Inspect._request")
    app = make_app()
    DelayQ(app)

    assert not hasattr(app.control.inspect(), "delayq")
    assert hasattr(app.control.inspect(), "ping")


def test_settings_are_read_once(delayq_app, url, take_away):
    take_away("celery.utils.collections:ConfigurationView.changes")
    app = delayq_app(url, delayq_batch_size=7)
    assert app.delayq.services.settings.batch_size == 7

    app.conf.delayq_batch_size = 8
    assert app.delayq.services.settings.batch_size == 7


def test_commands_look_as_click_s_do():
    ran = ran_without(["celery.bin.base:CeleryOption"], HELPED)

    assert "--overdue" in ran.stdout
    assert "Filter:" not in ran.stdout
    assert "Celery's look of the delayq commands: off, as celery " in ran.stderr


def test_messages_are_pushed_one_by_one(url, take_away):
    with Connection(url) as connection:
        assert type(publisher_for(connection, 1.0)) is Pushing
        take_away("kombu.transport.redis:Channel.conn_or_acquire")
        works.cache_clear()

        assert type(publisher_for(connection, 1.0)) is OneByOne


def test_a_message_that_no_queue_gets_passes(take_away):
    route = Route("", "nobody", "k", (), mandatory=True, list=None)
    with Connection("memory://") as connection:
        publisher = publisher_for(connection, 1.0)
        assert not publisher._leads_somewhere(route)
        take_away("kombu.transport.virtual:Channel._lookup")
        works.cache_clear()

        assert publisher._leads_somewhere(route)


def test_a_defer_is_an_error_like_any_other(make_app, take_away):
    take_away("celery.app.task:Task.signature_from_request")
    app = make_app()
    DelayQ(app)

    @app.task(bind=True)
    def wait(self):
        raise self.defer(after=5)

    with pytest.raises(Defer):
        wait.apply(throw=True)


def test_a_worker_s_commands_are_celery_s_own(monkeypatch, take_away):
    take_away("celery.worker.control:query_task")
    monkeypatch.setattr(Panel, "data", {"revoke": print})

    remote.in_worker(None)
    assert Panel.data == {"revoke": print}


def test_a_cancelled_task_is_not_stored_as_revoked(app_with_results, take_away, caplog):
    take_away("celery.backends.base:Backend.mark_as_revoked")
    app = app_with_results
    result = app.send_task("t", delayq_at=FAR)

    assert app.delayq.cancel(result.id)
    assert app.AsyncResult(result.id).state == "PENDING"
    warned = "REVOKED in the result backend for cancelled tasks: off"
    assert [line.partition(", as")[0] for line in caplog.messages] == [warned]


@pytest.mark.parametrize("name", TRIED)
def test_the_suite_runs_on_no_version_older_than_those_that_were_tried(name):
    """A newer one is no error: the other tests here check whether it still has all names."""

    def numbers(version):
        return tuple(map(int, version.split(".")[:2]))

    assert numbers(TRIED[name][0]) <= numbers(metadata.version(name))
