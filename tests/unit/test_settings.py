"""Every setting: its default, its bounds, and what is said to a value outside of them."""

import pytest

from celery_delayq.errors import InvalidSetting
from celery_delayq.settings import SETTINGS, Settings

DEFAULTS = {
    "enabled": True,
    "url": None,
    "transport_options": None,
    "prefix": "delayq",
    "batch_size": 200,
    "lease": 30.0,
    "safety_interval": 5.0,
    "timeout": 5.0,
    "wait_replicas": None,
    "max_message": 1_000_000,
    "capture_eta": False,
    "min_delay": 0.0,
    "shards": 1,
    "once": False,
    "history": 0,
    "history_repeats": True,
    "catch_up": None,
    "adopt_after": None,
    "metrics_port": None,
    "metrics_host": "127.0.0.1",
}
EXPECTED = {
    "enabled": "true or false",
    "url": "a redis://, rediss://, redis+socket:// or sentinel:// URL",
    "transport_options": "a mapping, or None",
    "prefix": "1 to 64 letters, digits, dots, dashes or underscores",
    "batch_size": "a whole number of tasks from 1 to 1000",
    "lease": "a number of seconds from 1 to 3600",
    "safety_interval": "a number of seconds from 0.1 to 300",
    "timeout": "a number of seconds from 0.1 to 60",
    "wait_replicas": '(n, seconds) or (n, seconds, "aof"), with n from 1 to 10 and seconds from '
    "0.01 to 60; or None",
    "max_message": "a whole number of bytes from 10000 to 100000000",
    "capture_eta": "true or false",
    "min_delay": "a number of seconds from 0 to 86400",
    "shards": "a whole number of shards from 1 to 64",
    "once": "true or false",
    "history": "a whole number of events from 0 to 10000",
    "history_repeats": "true or false",
    "catch_up": "a number of tasks a second from 0.1 to 1000000, or None",
    "adopt_after": "a number of seconds from 1 to 31536000, or None",
    "metrics_port": "a whole number from 1 to 65535, or None",
    "metrics_host": "an address, such as 0.0.0.0 for all of this machine's",
}
# What each setting takes: both ends of its range, and one of each kind beside them.
ACCEPTED = {
    "enabled": [True, False],
    "url": [None, "redis://localhost/0"],
    "transport_options": [None, {"master_name": "mymaster"}],
    "prefix": ["a", "A-b_c.9", "x" * 64],
    "batch_size": [1, 1000],
    "lease": [1, 1.5, 3600],
    "safety_interval": [0.1, 300],
    "timeout": [0.1, 60],
    "wait_replicas": [None, (1, 0.01), [10, 60], (1, 1, "aof"), [10, 60, "aof"]],
    "max_message": [10_000, 100_000_000],
    "capture_eta": [True, False],
    "min_delay": [0, 86_400],
    "shards": [1, 64],
    "once": [True, False],
    "history": [0, 10_000],
    "history_repeats": [True, False],
    "catch_up": [None, 0.1, 1_000_000],
    "adopt_after": [None, 1, 60.5, 31_536_000],
    "metrics_port": [None, 1, 65_535],
    "metrics_host": ["0.0.0.0", "::1"],
}
# The values just outside; of a whole number, one with a fraction; of a choice, a number.
REFUSED = {
    "enabled": [1, None],
    "url": ["", "localhost:6379", 6379, b"redis://localhost/0"],
    "transport_options": [0, 1.5, True],
    "prefix": ["", "x" * 65, "a b", "a:b", "{a}", "a\n", "é", None, 1],
    "batch_size": [0, 1001, 200.0],
    "lease": [0.999, 3600.1],
    "safety_interval": [0.09, 300.1],
    "timeout": [0.09, 60.1],
    "wait_replicas": [
        *((), (1,), (1, 1, 1), (1, 1, "aof", 1), {1: 1}, 1, "1, 1", "12", b"12", True),
        *((0, 1), (11, 1), (1.0, 1), (True, 1), (1, 0.009), (1, 60.1), (1, True), (1, None)),
        *((1, 1, ""), (1, 1, "AOF"), (1, 1, None), (1, 1, ["aof"])),
    ],
    "max_message": [9_999, 100_000_001, 1e6],
    "capture_eta": [1, None, "true"],
    "min_delay": [-0.001, 86_400.5],
    "shards": [0, 65, 1.5],
    "once": [1, None],
    "history": [-1, 10_001, 10.0],
    "history_repeats": [1, None],
    "catch_up": [0.09, 1_000_001],
    "adopt_after": [0.999, 31_536_001],
    "metrics_port": [0, 65_536, 80.0],
    "metrics_host": ["", " ", None, 1],
}
NOT_NUMBERS = ["1", True, float("nan"), float("inf"), [], 1j]
# One setting of each kind of number: whole, any, and one that can be left out.
REFUSED["batch_size"] += [-1, None, *NOT_NUMBERS]
REFUSED["lease"] += [-1, None, *NOT_NUMBERS]
REFUSED["catch_up"] += [-1, *NOT_NUMBERS]


def test_defaults_are_what_the_documentation_says():
    assert Settings.load({}) == Settings(**DEFAULTS)


def test_every_setting_is_among_those_tested_here():
    assert {setting.name: setting.expected for setting in SETTINGS} == EXPECTED
    assert ACCEPTED.keys() == REFUSED.keys() == EXPECTED.keys()


def test_a_setting_declares_all_that_the_readme_prints():
    for setting in SETTINGS:
        assert setting.key == f"delayq_{setting.name}"
        assert setting.unit, setting
        assert setting.says.endswith("."), setting
        assert setting.valid(setting.default), setting


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_value_inside_its_range_is_kept_as_it_is(name):
    kept = [getattr(Settings.load({f"delayq_{name}": value}), name) for value in ACCEPTED[name]]

    assert kept == ACCEPTED[name]


def refusal(name, value):
    try:
        Settings.load({f"delayq_{name}": value})
    except InvalidSetting as error:
        return error
    return InvalidSetting(name, value, "nothing else: it was taken")


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_outside_its_range_is_refused_with_setting_value_and_range(name):
    said = [str(refusal(name, value)) for value in REFUSED[name]]

    assert said == [
        f"delayq_{name} is {value!r}; expected {EXPECTED[name]}" for value in REFUSED[name]
    ]


def test_the_error_has_what_it_says():
    error = refusal("lease", 0)

    assert (error.name, error.value) == ("delayq_lease", 0)
    assert isinstance(error, ValueError)


def test_settings_of_others_are_not_looked_at():
    assert Settings.load({"broker_url": 1, "delayq": 2, "lease": 3}) == Settings(**DEFAULTS)


@pytest.mark.parametrize("value", ["secret", ["secret"], (("password", "secret"),)])
def test_what_is_no_mapping_of_options_is_not_shown(value):
    with pytest.raises(InvalidSetting) as caught:
        Settings.load({"delayq_transport_options": value})
    assert str(caught.value) == (
        f"delayq_transport_options is {type(value).__name__!r}; expected a mapping, or None"
    )


def test_what_may_hold_a_password_is_not_shown():
    options = {"sentinel_kwargs": {"password": "secret"}}
    settings = Settings.load(
        {"delayq_url": "redis://:secret@h", "delayq_transport_options": options}
    )
    assert "secret" not in repr(settings)
