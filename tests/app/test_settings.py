"""Settings: each wrong value is an error at start-up that names setting, value and range."""

import pytest

from celery_delayq import DelayQ, ScannerStep
from celery_delayq.errors import InvalidSetting
from celery_delayq.settings import SETTINGS

EXPECTED = {
    "delayq_url": "a redis:// or rediss:// URL",
    "delayq_prefix": "1 to 64 letters, digits, dots, dashes or underscores",
    "delayq_batch_size": "a whole number of tasks from 1 to 1000",
    "delayq_lease": "a number of seconds from 1 to 3600",
    "delayq_safety_interval": "a number of seconds from 0.1 to 300",
    "delayq_timeout": "a number of seconds from 0.1 to 60",
    "delayq_capture_eta": "true or false",
    "delayq_min_delay": "a number of seconds from 0 to 86400",
}

# tests/unit/test_settings.py tries many more; here, one of each goes the whole way.
WRONG = [
    ("delayq_url", "localhost:6379"),
    ("delayq_prefix", "{x}"),
    ("delayq_batch_size", 1001),
    ("delayq_lease", True),
    ("delayq_safety_interval", float("nan")),
    ("delayq_timeout", 0),
    ("delayq_capture_eta", "no"),
    ("delayq_min_delay", None),
]
RIGHT = [
    ("delayq_prefix", "x" * 64),
    ("delayq_batch_size", 1000),
    ("delayq_lease", 3600),
    ("delayq_safety_interval", 0.1),
    ("delayq_timeout", 60),
    ("delayq_capture_eta", True),
    ("delayq_min_delay", 0),
]


def test_every_setting_is_tried_here():
    assert {setting.key for setting in SETTINGS} == EXPECTED.keys()


@pytest.mark.parametrize(("key", "value"), WRONG, ids=repr)
def test_a_wrong_value_is_an_error_that_names_setting_value_and_range(make_app, key, value):
    app = make_app("redis://", **{key: value})
    delayq = DelayQ(app)

    with pytest.raises(InvalidSetting) as caught:
        delayq.services.check()

    assert str(caught.value) == f"{key} is {value!r}; expected {EXPECTED[key]}"
    assert (caught.value.name, repr(caught.value.value)) == (key, repr(value))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("key", "value"), RIGHT, ids=repr)
def test_the_edges_of_a_range_are_inside(make_app, key, value):
    delayq = DelayQ(make_app("redis://", **{key: value}))

    delayq.services.check()

    assert getattr(delayq.services.settings, key.removeprefix("delayq_")) == value


@pytest.mark.parametrize(("key", "value"), WRONG[:3], ids=repr)
def test_a_wrong_value_keeps_a_worker_from_starting(make_app, key, value):
    app = make_app("redis://", **{key: value})
    DelayQ(app)

    class Worker:
        pass

    worker = Worker()
    worker.app = app
    for no_delayq in (False, True):
        with pytest.raises(InvalidSetting, match=key):
            ScannerStep(worker, no_delayq=no_delayq)


def test_a_wrong_value_is_an_error_at_the_first_call_in_any_process(make_app):
    app = make_app("redis://", delayq_batch_size=0)
    DelayQ(app)

    with pytest.raises(InvalidSetting, match="delayq_batch_size is 0"):
        app.send_task("t", delayq_after=60)


def test_every_setting_has_a_default_that_is_valid(make_app):
    delayq = DelayQ(make_app("redis://"))

    delayq.services.check()

    assert delayq.services.settings.prefix == "delayq"
    assert delayq.services.settings.capture_eta is False


CONFIGURED = {"batch_size": 7, "prefix": "shop", "capture_eta": True, "lease": 9}


class Django:
    """Settings as a Django project has them."""

    CELERY_BROKER_URL = "redis://localhost:1/5"
    CELERY_DELAYQ_BATCH_SIZE = 7
    CELERY_DELAYQ_PREFIX = "shop"
    CELERY_DELAYQ_CAPTURE_ETA = True
    CELERY_DELAYQ_LEASE = 9
    DELAYQ_BATCH_SIZE = 3
    SECRET_KEY = "x"


class Plain:
    broker_url = "redis://localhost:1/5"
    delayq_batch_size = 7
    delayq_prefix = "shop"
    delayq_capture_eta = True
    delayq_lease = 9


def configured_by_namespace(app):
    app.config_from_object(Django, namespace="CELERY")


def configured_by_object(app):
    app.config_from_object(Plain)


def configured_by_dict(app):
    app.config_from_object({name: value for name, value in vars(Plain).items() if "__" not in name})


def configured_by_update(app):
    app.conf.update({name: value for name, value in vars(Plain).items() if "__" not in name})


def configured_one_by_one(app):
    for name, value in vars(Plain).items():
        if "__" not in name:
            app.conf[name] = value


def configured_by_attribute(app):
    for name, value in vars(Plain).items():
        if "__" not in name:
            setattr(app.conf, name, value)


def configured_by_defaults(app):
    app.add_defaults({name: value for name, value in vars(Plain).items() if "__" not in name})


WAYS = [
    configured_by_namespace,
    configured_by_object,
    configured_by_dict,
    configured_by_update,
    configured_one_by_one,
    configured_by_attribute,
    configured_by_defaults,
]


@pytest.fixture
def bare_app():
    from celery import Celery

    from tests.support.apps import celery_state_kept

    with celery_state_kept():
        app = Celery("bare")
        yield app
        app.close()


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("configure", WAYS)
def test_settings_are_read_however_and_whenever_the_app_was_configured(bare_app, configure, order):
    if order == "after":
        delayq = DelayQ(bare_app)
        configure(bare_app)
    else:
        configure(bare_app)
        delayq = DelayQ(bare_app)

    settings = delayq.services.settings

    assert {name: getattr(settings, name) for name in CONFIGURED} == CONFIGURED
    assert delayq.services.endpoint.db == 5


def test_with_a_namespace_a_wrong_value_is_named_as_celery_knows_it(bare_app):
    delayq = DelayQ(bare_app)
    bare_app.config_from_object({"CELERY_DELAYQ_LEASE": 0}, namespace="CELERY")

    with pytest.raises(InvalidSetting, match="delayq_lease is 0"):
        _ = delayq.services.settings


def test_settings_may_be_set_until_they_are_first_needed(bare_app):
    bare_app.conf.broker_url = "redis://"
    delayq = DelayQ(bare_app)
    bare_app.conf.delayq_prefix = "one"
    bare_app.conf.delayq_prefix = "two"

    assert delayq.services.settings.prefix == "two"
