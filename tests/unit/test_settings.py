"""Every setting: its default, its bounds, and what is said to a value outside of them."""

import pytest

from celery_delayq.errors import InvalidSetting
from celery_delayq.settings import SETTINGS, Settings

DEFAULTS = {
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
ACCEPTED = [
    *(("url", url) for url in (None, "redis://localhost/0", "rediss://host:1/2", "unix:///run/r")),
    *(("transport_options", value) for value in (None, {}, {"master_name": "mymaster"})),
    *(("prefix", name) for name in ("a", "A-b_c.9", "x" * 64)),
    *(("batch_size", number) for number in (1, 200, 1000)),
    *(("lease", number) for number in (1, 1.5, 3600)),
    *(("safety_interval", number) for number in (0.1, 1, 300)),
    *(("timeout", number) for number in (0.1, 1, 60)),
    *(("wait_replicas", wait) for wait in (None, (1, 0.01), (10, 60), [2, 0.5])),
    *(("wait_replicas", wait) for wait in ((1, 1, "aof"), [10, 60, "aof"])),
    *(("max_message", number) for number in (10_000, 1_000_000, 100_000_000)),
    *(("capture_eta", choice) for choice in (True, False)),
    *(("min_delay", number) for number in (0, 0.5, 86_400)),
    *(("shards", number) for number in (1, 2, 64)),
    *(("once", choice) for choice in (True, False)),
    *(("history", number) for number in (0, 1, 10_000)),
    *(("history_repeats", choice) for choice in (True, False)),
    *(("catch_up", number) for number in (None, 0.1, 250, 1_000_000)),
    *(("adopt_after", number) for number in (None, 1, 60.5, 31_536_000)),
    *(("metrics_port", number) for number in (None, 1, 9540, 65_535)),
    *(("metrics_host", text) for text in ("0.0.0.0", "::1", "localhost")),
]
NOT_NUMBERS = (None, "1", True, float("nan"), float("inf"), [], 1j)
REFUSED = [
    *(("transport_options", value) for value in (0, 1.5, True)),
    *(
        ("url", value)
        for value in ("", "redis", "localhost:6379", 6379, True, b"redis://localhost/0")
    ),
    *(("prefix", value) for value in ("", "x" * 65, "a b", "a:b", "{a}", "a\n", "é", None, 1)),
    *(("batch_size", value) for value in (0, 1001, -1, 1.5, 200.0, *NOT_NUMBERS)),
    *(("lease", value) for value in (0, 0.999, 3600.1, -1, *NOT_NUMBERS)),
    *(("safety_interval", value) for value in (0, 0.09, 300.1, -1, *NOT_NUMBERS)),
    *(("timeout", value) for value in (0, 0.09, 60.1, -1, *NOT_NUMBERS)),
    *(("wait_replicas", value) for value in ((), (1,), (1, 1, 1), (1, 1, "aof", 1), {1: 1}, 1)),
    *(("wait_replicas", (value, 1)) for value in (0, 11, -1, 1.0, *NOT_NUMBERS)),
    *(("wait_replicas", (1, value)) for value in (0, 0.009, 60.1, -1, *NOT_NUMBERS)),
    *(("wait_replicas", (1, 1, value)) for value in ("", "AOF", "disk", None, True, ["aof"])),
    *(("wait_replicas", value) for value in ("1, 1", "12", b"12", True)),
    *(("max_message", value) for value in (0, 9_999, 100_000_001, 1e6, *NOT_NUMBERS)),
    *(("capture_eta", value) for value in (0, 1, None, "true", "no")),
    *(("min_delay", value) for value in (-0.001, 86_400.5, *NOT_NUMBERS)),
    *(("history", value) for value in (-1, 10_001, 10.0, *NOT_NUMBERS)),
    *(("history_repeats", value) for value in (0, 1, None, "true", "no")),
    *(("shards", value) for value in (0, 65, -1, 1.5, *NOT_NUMBERS)),
    *(("once", value) for value in (0, 1, None, "true", "no")),
    *(("catch_up", value) for value in (0, 0.09, 1_000_001, -1, *NOT_NUMBERS[1:])),
    *(("adopt_after", value) for value in (0, 0.999, 31_536_001, -1, *NOT_NUMBERS[1:])),
    *(("metrics_port", value) for value in (0, 65_536, -1, 80.0, *NOT_NUMBERS[1:])),
    *(("metrics_host", value) for value in ("", " ", None, 1)),
]


def test_defaults_are_what_the_documentation_says():
    assert Settings.load({}) == Settings(**DEFAULTS)


def test_every_setting_is_among_those_tested_here():
    assert {setting.name: setting.expected for setting in SETTINGS} == EXPECTED
    assert {name for name, _ in ACCEPTED} == {name for name, _ in REFUSED} == EXPECTED.keys()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_declares_all_that_the_readme_prints(setting):
    assert setting.key == f"delayq_{setting.name}"
    assert setting.unit
    assert setting.says.endswith(".")
    assert setting.valid(setting.default)


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_value_inside_its_range_is_kept_as_it_is(name, value):
    assert getattr(Settings.load({f"delayq_{name}": value}), name) == value


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_value_outside_its_range_is_refused_with_setting_value_and_range(name, value):
    with pytest.raises(InvalidSetting) as caught:
        Settings.load({f"delayq_{name}": value})
    assert str(caught.value) == f"delayq_{name} is {value!r}; expected {EXPECTED[name]}"
    assert (caught.value.name, caught.value.value) == (f"delayq_{name}", value)
    assert isinstance(caught.value, ValueError)


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
