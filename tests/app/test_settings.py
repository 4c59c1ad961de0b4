"""Settings: each wrong value is an error at start-up that names setting, value and range."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from celery import Celery

from celery_delayq import DelayQ, ScannerStep
from celery_delayq.core.settings import SETTINGS
from celery_delayq.errors import InvalidSetting, SwitchedOff, UnknownSetting
from tests.app.support import FAR
from tests.support.apps import celery_state_kept

# tests/unit/test_settings.py tries each setting; here, a few, end to end.
REDIS = (
    "a redis://, rediss://, redis+socket://, redis+cluster://, valkey://, valkeys:// or "
    "sentinel:// URL"
)
WRONG = [
    ("delayq_url", "localhost:6379", REDIS),
    ("delayq_transport_options", 5, "a mapping, or None"),
    ("delayq_batch_size", 1001, "a whole number of tasks from 1 to 1000"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG, ids=repr)
def test_a_wrong_value_is_an_error_that_names_setting_value_and_range(
    make_app, key, value, expected
):
    app = make_app("redis://", **{key: value})
    delayq = DelayQ(app)

    with pytest.raises(InvalidSetting) as caught:
        delayq.services.check()

    assert str(caught.value) == f"{key} is {value!r}; expected {expected}"
    assert (caught.value.name, caught.value.value) == (key, value)


def test_a_right_value_is_the_app_s(make_app):
    delayq = DelayQ(make_app("redis://", delayq_batch_size=1000, delayq_wait_replicas=(10, 60)))

    delayq.services.check()

    settings = delayq.services.settings
    assert (settings.batch_size, settings.wait_replicas) == (1000, (10, 60))


@pytest.mark.parametrize("no_delayq", [False, True])
def test_a_wrong_value_keeps_a_worker_from_starting(make_app, no_delayq):
    app = make_app("redis://", delayq_batch_size=1001)
    DelayQ(app)

    with pytest.raises(InvalidSetting, match="delayq_batch_size"):
        ScannerStep(SimpleNamespace(app=app), no_delayq=no_delayq)


def test_without_a_redis_a_worker_starts_that_does_not_scan(make_app):
    app = make_app("memory://")
    DelayQ(app)

    for no_delayq in (True, False):
        worker = app.WorkController(pool="solo", no_delayq=no_delayq)
        assert not any(isinstance(one, ScannerStep) for one in worker.steps)
    app.conf.delayq_url = "memory://"
    with pytest.raises(InvalidSetting, match="delayq_url is 'memory://'"):
        app.WorkController(pool="solo", no_delayq=True)


CONFIGURED = {"batch_size": 7, "prefix": "shop", "capture_eta": True, "lease": 9}
PLAIN = {f"delayq_{name}": value for name, value in CONFIGURED.items()}
PLAIN["broker_url"] = "redis://localhost:1/5"


class Django:
    """Settings as a Django project has them."""

    CELERY_BROKER_URL = "redis://localhost:1/5"
    CELERY_DELAYQ_BATCH_SIZE = 7
    CELERY_DELAYQ_PREFIX = "shop"
    CELERY_DELAYQ_CAPTURE_ETA = True
    CELERY_DELAYQ_LEASE = 9
    DELAYQ_BATCH_SIZE = 3
    SECRET_KEY = "x"


def one_by_one(app):
    for name, value in PLAIN.items():
        app.conf[name] = value


def by_attribute(app):
    for name, value in PLAIN.items():
        setattr(app.conf, name, value)


WAYS = {
    "namespace": lambda app: app.config_from_object(Django, namespace="CELERY"),
    "object": lambda app: app.config_from_object(SimpleNamespace(**PLAIN)),
    "dict": lambda app: app.config_from_object(PLAIN),
    "update": lambda app: app.conf.update(PLAIN),
    "one by one": one_by_one,
    "attribute": by_attribute,
    "defaults": lambda app: app.add_defaults(PLAIN),
}


@pytest.fixture
def bare_app():
    with celery_state_kept():
        app = Celery("bare")
        yield app
        app.close()


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("configure", WAYS.values(), ids=WAYS)
def test_settings_are_read_however_and_whenever_the_app_was_configured(bare_app, configure, order):
    if order == "before":
        configure(bare_app)
    delayq = DelayQ(bare_app)
    if order == "after":
        configure(bare_app)

    settings = delayq.services.settings

    assert {name: getattr(settings, name) for name in CONFIGURED} == CONFIGURED
    assert delayq.services.endpoint.db == 5


def test_a_store_that_is_changed_later_is_used_from_then_on(app, add, delayq):
    first = add.delay_until(FAR, 1)

    app.conf.delayq_prefix = "other"
    assert delayq.get(first.id) is None
    add.delay_until(FAR, 2)

    assert [task.args for task in delayq.tasks()] == [(2,)]
    app.conf.delayq_prefix = "delayq"
    assert [task.args for task in delayq.tasks()] == [(1,)]


CHANGED = {
    "url": lambda server: server.url(7),
    "transport_options": lambda _: {"ssl": False},
    "prefix": "other",
    "wait_replicas": (1, 0.5),
    "metrics_port": 9999,
    "metrics_host": "0.0.0.0",
    "adopt_after": 60,
    "catch_up": 10,
    "shards": 2,
    **dict.fromkeys(("beat", "capture_eta", "once"), True),
    "history_repeats": False,
    "remember": (60, 10_000),
    "undo": (60, 10),
}


@pytest.mark.parametrize(
    "name", [setting.name for setting in SETTINGS if setting.name != "enabled"]
)
def test_a_change_of_any_setting_makes_the_store_anew(delayq_app, redis_server, redis, name):
    conf = {"delayq_url": redis_server.url()} if name == "transport_options" else {}
    app = delayq_app(redis_server.url(), delayq_shards=1, **conf)
    services = app.delayq.services
    before = services.entries, services.membership, services.scripts
    new = CHANGED[name] if name in CHANGED else getattr(services.settings, name) + 1

    app.conf[f"delayq_{name}"] = new(redis_server) if callable(new) else new

    after = services.entries, services.membership, services.scripts
    assert not any(one is other for one, other in zip(before, after, strict=True))
    assert services.entries is after[0]
    assert app.delayq.counts().scheduled == 0


def test_another_configuration_replaces_the_first_one(bare_app):
    bare_app.config_from_object(PLAIN)
    delayq = DelayQ(bare_app)
    assert delayq.services.settings.batch_size == 7

    bare_app.config_from_object({"broker_url": "redis://", "delayq_batch_size": 8})

    assert delayq.services.settings.batch_size == 8


def test_an_app_that_is_switched_off_later_schedules_nothing_more(app, delayq, add):
    delayq.counts()

    app.conf.delayq_enabled = False

    with pytest.raises(SwitchedOff):
        add.delay_for(60, 1)
    app.conf.delayq_enabled = True
    assert delayq.counts().scheduled == 0


@pytest.mark.parametrize("first_call", [True, False])
def test_a_wrong_value_is_an_error_of_the_next_call_whenever_it_is_set(app, add, first_call):
    if not first_call:
        add.delay_until(FAR, 1)

    app.conf.delayq_lease = 0

    with pytest.raises(InvalidSetting, match="delayq_lease is 0"):
        add.delay_until(FAR, 2)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("delayq_batchsize", "delayq_batch_size"),
        ("delayq_capture", "delayq_capture_eta"),
        ("delayq_redis_url", "delayq_url"),
    ],
)
def test_an_unknown_setting_is_an_error_that_names_the_nearest_one(make_app, wrong, nearest):
    app = make_app("redis://", **{wrong: 1})
    delayq = DelayQ(app)

    with pytest.raises(UnknownSetting) as caught:
        delayq.services.check()

    assert str(caught.value).startswith(f"there is no setting {wrong}; did you mean delayq_")
    assert caught.value.nearest == nearest


def test_a_time_zone_that_is_set_later_is_the_one_of_naive_times(app, add):
    add.delay_until("2100-01-01T00:00:00", 1)
    add.apply_async((1,), countdown=60)

    app.conf.timezone = "Asia/Tokyo"
    result = add.delay_until("2100-01-01T00:00:00", 1)

    assert result.due.isoformat() == "2099-12-31T15:00:00+00:00"


# A spelling that Celery does not read, as it reads none of its own in it.


def spelled(key):
    """A setting in each spelling that a program may think of."""
    upper = key.upper()
    return [key, upper, f"CELERY_{upper}", f"celery_{key}", f"CELERY_{key}", key.title()]


def by_module(app, settings, namespace):
    module = ModuleType("celeryconfig")
    vars(module).update(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        app.config_from_object(module.__name__, namespace=namespace)
        app.conf.get("broker_url")  # this reads it


def by_variable(app, settings, namespace):
    del namespace  # Celery takes none here
    module = ModuleType("celeryconfig")
    vars(module).update(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        patch.setenv("CONFIG", module.__name__)
        app.config_from_envvar("CONFIG")
        app.conf.get("broker_url")


def by_update(app, settings, namespace):
    app.config_from_object({}, namespace=namespace)
    app.conf.update(settings)


SOURCES = {
    "object": lambda app, settings, namespace: app.config_from_object(
        SimpleNamespace(**settings), namespace=namespace
    ),
    "dict": lambda app, settings, namespace: app.config_from_object(settings, namespace=namespace),
    "module": by_module,
    "variable": by_variable,
    "update": by_update,
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("namespace", [None, "CELERY", "celery"])
def test_a_spelling_that_celery_does_not_read_is_refused_with_the_one_that_it_reads(
    source, namespace
):
    for ours, theirs in zip(
        spelled("delayq_capture_eta"), spelled("task_always_eager"), strict=True
    ):
        with celery_state_kept(), Celery("spelled", broker="memory://") as app:
            SOURCES[source](app, {ours: True, theirs: True}, namespace)
            services = DelayQ(app).services
            if app.conf.task_always_eager:
                assert services.settings.capture_eta
                continue
            right = "delayq_capture_eta"
            if source != "variable" and namespace:
                right = f"CELERY_{right}".upper() if namespace.isupper() else f"celery_{right}"
            with pytest.raises(UnknownSetting) as caught:
                _ = services.settings
            assert (caught.value.name, caught.value.nearest) == (ours, right)


@pytest.mark.parametrize(
    "constants",
    [
        {"DELAYQ_URL": "redis://", "delayq_url": "redis://"},
        {"DELAYQ_URL": None},
        {"DELAYQ_REDIS_HOST": "red"},
    ],
    ids=str,
)
def test_a_constant_beside_a_setting_is_none(bare_app, constants):
    bare_app.config_from_object(constants)
    assert DelayQ(bare_app).services.settings.url == constants.get("delayq_url")


# With a namespace, an error names a setting as it was written.

UNKNOWN = r"there is no setting CELERY_DELAYQ_URLS; did you mean CELERY_DELAYQ_URL\?"


@pytest.mark.parametrize(
    ("namespace", "written", "says"),
    [
        ("CELERY", {"CELERY_DELAYQ_LEASE": 0}, "CELERY_DELAYQ_LEASE is 0;"),
        ("CELERY_", {"CELERY_DELAYQ_LEASE": 0}, "CELERY_DELAYQ_LEASE is 0;"),
        ("celery", {"celery_delayq_lease": 0}, "celery_delayq_lease is 0;"),
        ("CELERY", {"DELAYQ_NONE": 1, "CELERY_DELAYQ_URLS": 2}, f"{UNKNOWN}$"),
    ],
)
def test_with_a_namespace_a_setting_is_named_as_it_was_written(bare_app, namespace, written, says):
    delayq = DelayQ(bare_app)
    bare_app.config_from_object(written, namespace=namespace)

    with pytest.raises((InvalidSetting, UnknownSetting), match=f"^{says}"):
        _ = delayq.services.settings


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lease", "delayq_lease is 0;"),
        ("urls", r"there is no setting delayq_urls; did you mean delayq_url\?"),
    ],
)
def test_with_a_namespace_what_is_set_on_the_app_is_named_as_it_is_there(bare_app, name, says):
    delayq = DelayQ(bare_app)
    bare_app.config_from_object({"CELERY_DELAYQ_BATCH_SIZE": 9}, namespace="CELERY")
    assert bare_app.conf.delayq_batch_size == 9
    setattr(bare_app.conf, f"delayq_{name}", 0)

    with pytest.raises((InvalidSetting, UnknownSetting), match=f"^{says}"):
        _ = delayq.services.settings
