"""Every setting: its default, its bounds, and the error for a value outside of them."""

from typing import Any, NamedTuple

import pytest

from celery_delayq.core.settings import SETTINGS, Settings
from celery_delayq.errors import InvalidSetting

pytestmark = pytest.mark.core


class Row(NamedTuple):
    """The facts about a setting."""

    default: Any  # its value if the app sets none
    expected: str  # the accepted values, as an error describes them
    accepted: list[Any]  # both ends of its range, and one value of each other kind
    # The values just outside; of a whole number, one with a fraction; of a choice, a number.
    refused: list[Any]


ROWS = {
    "enabled": Row(True, "true or false", [True, False], [1, None]),
    "url": Row(
        None,
        "a redis://, rediss://, redis+socket://, redis+cluster://, valkey://, valkeys:// or "
        "sentinel:// URL",
        [None, "redis://localhost/0"],
        ["", "localhost:6379", 6379, b"redis://localhost/0"],
    ),
    "transport_options": Row(
        None, "a mapping, or None", [None, {"master_name": "mymaster"}], [0, 1.5, True]
    ),
    "prefix": Row(
        "delayq",
        "1 to 64 letters, digits, dots, dashes or underscores",
        ["a", "A-b_c.9", "x" * 64],
        ["", "x" * 65, "a b", "a:b", "{a}", "a\n", "é", None, 1],
    ),
    "batch_size": Row(200, "a whole number of tasks from 1 to 1000", [1, 1000], [0, 1001, 200.0]),
    "lease": Row(30.0, "a number of seconds from 1 to 3600", [1, 1.5, 3600], [0.999, 3600.1]),
    "safety_interval": Row(5.0, "a number of seconds from 0.1 to 300", [0.1, 300], [0.09, 300.1]),
    "timeout": Row(5.0, "a number of seconds from 0.1 to 60", [0.1, 60], [0.09, 60.1]),
    "wait_replicas": Row(
        None,
        '(n, seconds) or (n, seconds, "aof"), with n from 1 to 10 and seconds from '
        "0.01 to 60; or None",
        [None, (1, 0.01), [10, 60], (1, 1, "aof"), [10, 60, "aof"]],
        [
            *((), (1,), (1, 1, 1), (1, 1, "aof", 1), {1: 1}, 1, "1, 1", "12", b"12", True),
            *((0, 1), (11, 1), (1.0, 1), (True, 1), (1, 0.009), (1, 60.1), (1, True), (1, None)),
            *((1, 1, ""), (1, 1, "AOF"), (1, 1, None), (1, 1, ["aof"])),
        ],
    ),
    "max_message": Row(
        1_000_000,
        "a whole number of bytes from 10000 to 100000000",
        [10_000, 100_000_000],
        [9_999, 100_000_001, 1e6],
    ),
    "capture_eta": Row(False, "true or false", [True, False], [1, None, "true"]),
    "min_delay": Row(0.0, "a number of seconds from 0 to 86400", [0, 86_400], [-0.001, 86_400.5]),
    "shards": Row(1, "a whole number of shards from 1 to 64", [1, 64], [0, 65, 1.5]),
    "once": Row(False, "true or false", [True, False], [1, None]),
    "history": Row(0, "a whole number of events from 0 to 10000", [0, 10_000], [-1, 10_001, 10.0]),
    "history_repeats": Row(True, "true or false", [True, False], [1, None]),
    "catch_up": Row(
        None,
        "a number of tasks a second from 0.1 to 1000000, or None",
        [None, 0.1, 1_000_000],
        [0.09, 1_000_001],
    ),
    "unknown_for": Row(
        604_800,
        "a number of seconds from 1 to 31536000, or None",
        [None, 1, 60.5, 31_536_000],
        [0.999, 31_536_001],
    ),
    "adopt_after": Row(
        None,
        "a number of seconds from 1 to 31536000, or None",
        [None, 1, 60.5, 31_536_000],
        [0.999, 31_536_001],
    ),
    "remember": Row(
        (3600, 1_000_000),
        "(seconds, tasks), with seconds from 60 to 2592000 and a whole number of tasks from 10000 "
        "to 100000000",
        [(60, 10_000), [2_592_000, 100_000_000], (90.5, 10_000)],
        [
            *(None, 0, (), (60,), (60, 10_000, 1), {60: 1, 10_000: 1}, {60, 10_000}, "60", b"60"),
            *((59.9, 10_000), (2_592_001, 10_000), (60, 9_999), (60, 100_000_001), (60, 1e4)),
            *((True, 10_000), (60, True), ("60", 10_000), (60, None), (float("nan"), 10_000)),
        ],
    ),
    "beat": Row(False, "true or false", [True, False], [1, 0, "yes", None]),
    "undo": Row(
        0,
        "(seconds, tasks), with seconds from 60 to 2592000 and a whole number of tasks from 1 to "
        "100000; or 0",
        [0, (60, 1), [2_592_000, 100_000], (90.5, 10)],
        [
            *(None, 1, False, (), (60,), (60, 10, 1), {60: 1, 10: 1}, {60, 10}, "60", b"60"),
            *((59.9, 10), (2_592_001, 10), (60, 0), (60, 100_001), (60, 1.5)),
            *((True, 10), (60, True), ("60", 10), (60, None), (float("nan"), 10)),
        ],
    ),
    "metrics_port": Row(
        None, "a whole number from 1 to 65535, or None", [None, 1, 65_535], [0, 65_536, 80.0]
    ),
    "metrics_host": Row(
        "127.0.0.1",
        "an address, such as 0.0.0.0 for all of this machine's",
        ["0.0.0.0", "::1"],
        ["", " ", None, 1],
    ),
}
NOT_NUMBERS = ["1", True, float("nan"), float("inf"), [], 1j]
# One setting of each kind of number: whole, any, and one that can be left out.
ROWS["batch_size"].refused.extend([-1, None, *NOT_NUMBERS])
ROWS["lease"].refused.extend([-1, None, *NOT_NUMBERS])
ROWS["catch_up"].refused.extend([-1, *NOT_NUMBERS])
DEFAULTS = {name: row.default for name, row in ROWS.items()}


def test_defaults_are_what_the_documentation_says():
    assert Settings.load({}) == Settings(**DEFAULTS)


def test_every_setting_is_among_those_tested_here():
    said = {setting.name: setting.expected for setting in SETTINGS}
    assert said == {name: row.expected for name, row in ROWS.items()}


def test_a_setting_declares_all_that_the_readme_prints():
    for setting in SETTINGS:
        assert setting.key == f"delayq_{setting.name}"
        assert setting.unit, setting
        assert setting.says.endswith("."), setting
        assert setting.valid(setting.default), setting


@pytest.mark.parametrize("name", ROWS)
def test_a_value_inside_its_range_is_kept_as_it_is(name):
    accepted = ROWS[name].accepted
    kept = [getattr(Settings.load({f"delayq_{name}": value}), name) for value in accepted]
    assert kept == accepted


def refusal(name, value):
    try:
        Settings.load({f"delayq_{name}": value})
    except InvalidSetting as error:
        return error
    return InvalidSetting(name, value, "nothing else: it was taken")


@pytest.mark.parametrize("name", ROWS)
def test_a_value_outside_its_range_is_refused_with_setting_value_and_range(name):
    _, expected, _, refused = ROWS[name]
    said = [str(refusal(name, value)) for value in refused]
    assert said == [f"delayq_{name} is {value!r}; expected {expected}" for value in refused]


def test_settings_of_others_are_not_looked_at():
    assert Settings.load({"broker_url": 1, "delayq": 2, "lease": 3}) == Settings(**DEFAULTS)


@pytest.mark.parametrize("value", ["secret", ["secret"], (("password", "secret"),)])
def test_options_that_are_no_mapping_are_not_shown(value):
    with pytest.raises(InvalidSetting) as caught:
        Settings.load({"delayq_transport_options": value})
    assert str(caught.value) == (
        f"delayq_transport_options is {type(value).__name__!r}; expected a mapping, or None"
    )


def test_settings_show_no_password():
    options = {"sentinel_kwargs": {"password": "secret"}}
    given = {"delayq_url": "redis://:secret@h", "delayq_transport_options": options}
    assert "secret" not in repr(Settings.load(given))
