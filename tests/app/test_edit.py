"""`delayq.edit`: the message equals that of a plain call with the new values."""

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from kombu import Queue

from celery_delayq import Outcome
from celery_delayq.core.message.body import is_celery_s
from celery_delayq.errors import InvalidDueTime, InvalidOption
from tests.app.support import FAR, LONG_AGO, comparable, envelope, only_message, templates

pytestmark = pytest.mark.libraries

UTC = timezone.utc


def sent_plainly(redis, call):
    """(list, message) that Celery sends for a call, without the fields that always differ."""
    call()
    key, raw = only_message(redis)
    redis.delete(key)
    return key, comparable(raw)


def handed_over(delayq, redis):
    delayq.hand_over()
    key, raw = only_message(redis)
    return key, comparable(raw)


WAYS = {
    "plain": {},
    "compressed": {"compression": "zlib"},
    "msgpack": {"serializer": "msgpack"},
    "pickle": {"serializer": "pickle"},
    "own argsrepr": {"argsrepr": "(***)", "kwargsrepr": "{***}"},
    "links": {"link": "add", "link_error": "add", "headers": {"mine": 1}},
    "priority": {"priority": 6},
    "once": {"delayq_once": True},
}


# Each way once, alternating between a whole message and one that shares a template.
@pytest.mark.parametrize(("way", "shared"), [(way, at % 2 == 0) for at, way in enumerate(WAYS)])
def test_an_edited_message_equals_that_of_a_call_with_the_new_arguments(
    delayq_app, url, redis, *, way, shared
):
    app = delayq_app(
        url,
        accept_content=["json", "msgpack", "pickle"],
        broker_transport_options={"priority_steps": [0, 3, 6, 9]},
    )

    @app.task(name="add")
    def add(x, y=0):
        return x + y

    options = {**WAYS[way], "task_id": "a"}
    for link in ("link", "link_error"):
        if link in options:
            options[link] = add.s(3)
    new = (("ü", 2**60, [1, {"x": None}])[:2], {})
    expected = sent_plainly(redis, lambda: add.apply_async(*new, **options))
    for _ in range(2 if shared else 1):  # a message is sent for the first time
        app.delayq.cancel("a")
        add.apply_async((1,), {"y": 2}, delayq_at=LONG_AGO, **options)

    assert app.delayq.edit("a", args=new[0], kwargs=new[1]) is Outcome.DONE

    assert handed_over(app.delayq, redis) == expected
    assert templates(redis) == (0, 0)


def test_only_what_is_given_changes(app, add, delayq):
    add.apply_async((1,), {"y": 2}, task_id="a", priority=4, expires=60, delayq_at=FAR)
    before = envelope(delayq, "a").raw
    same = json.dumps([[1], {"y": 2}])

    assert delayq.edit("a", args=[5])
    assert (delayq.get("a").args, delayq.get("a").kwargs) == ((5,), {"y": 2})
    assert delayq.edit("a", kwargs={})
    assert (delayq.get("a").args, delayq.get("a").kwargs) == ((5,), {})
    assert delayq.edit("a", args=[1], kwargs={"y": 2})

    after = envelope(delayq, "a").raw
    assert json.dumps([delayq.get("a").args, delayq.get("a").kwargs]) == same
    # Arguments are shown as they were given: the tuple is now a list.
    assert after["headers"].pop("argsrepr") == "[1]"
    assert before["headers"].pop("argsrepr") == "(1,)"
    for one in (before, after):
        one["properties"].pop("delivery_tag")
    assert after == before


@pytest.mark.parametrize(
    ("queue", "before", "after", "expected"),
    [
        ("celery", None, 4, ("celery\x06\x163", 4)),
        ("mail", None, 4, ("mail\x06\x163", 4)),
        ("celery", 9, None, ("celery", 0)),
    ],
)
def test_a_new_priority_changes_the_list_and_none_is_the_broker_s_default(
    add, delayq, redis, *, queue, before, after, expected
):
    result = add.apply_async((1,), queue=queue, priority=before, delayq_at=LONG_AGO)

    assert delayq.edit(result, priority=after)

    delayq.hand_over()
    found, raw = only_message(redis)
    assert (found.decode(), json.loads(raw)["properties"]["priority"]) == expected


def test_a_prefix_of_all_keys_stays_in_the_list(delayq_app, url, redis):
    app = delayq_app(url, broker_transport_options={"global_keyprefix": "p:"})
    app.send_task("t", task_id="a", delayq_at=LONG_AGO)

    assert app.delayq.edit("a", priority=6)

    app.delayq.hand_over()
    assert only_message(redis)[0] == b"p:celery\x06\x166"


# Expiry.


def expiry(delayq, task_id):
    text = envelope(delayq, task_id).headers["expires"]
    return None if text is None else datetime.fromisoformat(text)


DUE, FIXED = datetime.fromtimestamp(FAR, UTC), datetime(2150, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "before", "expected", "is_relative"),
    [
        (60, None, DUE + timedelta(minutes=1), True),
        (0.5, 5, DUE + timedelta(seconds=0.5), True),
        (timedelta(minutes=1), FIXED, DUE + timedelta(minutes=1), True),
        (-5, FIXED, DUE - timedelta(seconds=5), True),
        (0, None, DUE, True),
        (FIXED, 5, FIXED, False),
        ("2150-01-01T00:00:00Z", None, FIXED, False),
        (None, 5, None, False),
        (None, FIXED, None, False),
        (1e300, None, datetime(9999, 12, 31, tzinfo=UTC), False),  # the last day there is
    ],
)
def test_a_relative_expiry_follows_the_due_time_and_another_one_stays(
    add, delayq, *, given, before, expected, is_relative
):
    result = add.apply_async((1,), expires=before, delayq_at=FAR)

    assert delayq.edit(result, expires=given)

    found = expiry(delayq, result.id)
    assert found == expected or (given == 1e300 and found.date() == expected.date())
    delayq.reschedule(result, by=HOUR)
    delayq.edit(result, args=[2])
    assert expiry(delayq, result.id) == (found + HOUR if is_relative else found)


# How a process shows arguments.


def shown(delayq, task_id):
    headers = envelope(delayq, task_id).headers
    return headers["argsrepr"], headers["kwargsrepr"]


def test_arguments_that_a_caller_hides_stay_hidden(add, delayq):
    result = add.apply_async(("s3cret",), argsrepr="(***)", delayq_at=FAR)

    delayq.edit(result, args=["n3w"], kwargs={"y": 1})

    assert shown(delayq, result.id) == ("(***)", "{'y': 1}")


@pytest.mark.parametrize(
    "old",
    [
        ([1, (2, [3]), {"x": (4,)}],),
        (1,),
        (["a" * 5000, (1,)],),
        ([["b" * 2000] * 3, "c" * 900],),
        ([Decimal("1.5"), "…", "(,)"],),
    ],
)
def test_an_edit_renews_the_arguments_that_celery_shows(add, delayq, old):
    result = add.apply_async(old, delayq_at=FAR)

    delayq.edit(result, args=("new",))

    assert shown(delayq, result.id) == ("('new',)", "{}")


@pytest.mark.parametrize(
    ("text", "made", "is_so"),
    [
        ("(1,)", "[1]", True),
        ("(1, (2,))", "[1, [2]]", True),
        ("(***)", "[1]", False),
        ("...", "[" + "x" * 500 + "...]", False),
        ("(...)", "[" + "x" * 500 + "...]", False),
        ("(" + "x" * 499 + "...)", "[" + "x" * 500 + "...]", True),
        ("(" + "y" * 499 + "...)", "[" + "x" * 500 + "...]", False),
        (None, "[1]", False),
        (5, "[1]", False),
    ],
)
def test_a_text_of_the_caller_s_own_is_told_from_celery_s(text, made, is_so):
    assert is_celery_s(text, made) is is_so


# Arguments that do not fit.


@pytest.mark.parametrize(
    "changes", [{"args": (1, 2, 3)}, {"kwargs": {"z": 1}}, {"args": ()}, {"kwargs": {"x": 1}}]
)
def test_arguments_are_checked_against_the_task_as_of_a_call(add, delayq, changes):
    result = add.delay_until(FAR, 1)
    before = delayq.get(result)

    with pytest.raises(TypeError, match=r"add\(\) "):
        delayq.edit(result, **changes)

    assert delayq.get(result) == before


def test_a_task_without_typing_or_unknown_to_this_process_is_not_checked(app, delayq):
    @app.task(name="free", typing=False)
    def free(x):
        return x

    for name in ("free", "elsewhere"):
        result = app.send_task(name, (1,), delayq_at=FAR)
        assert delayq.edit(result, args=[1, 2, 3])


def test_a_task_of_a_module_that_only_workers_import_is_checked(app, delayq, found_by_workers):
    found_by_workers("elsewhere")
    app.send_task("elsewhere", (1,), task_id="a", delayq_at=FAR)
    with pytest.raises(TypeError):
        delayq.edit("a", args=[1, 2, 3])


BAD = {
    "nothing": ({}, "edit is None; expected one of args, kwargs, priority, expires"),
    "args text": ({"args": "ab"}, "args is 'ab'; expected a list or a tuple"),
    "kwargs list": ({"kwargs": []}, "kwargs is []; expected a mapping"),
    "priority low": ({"priority": -1}, "priority is -1; expected a whole number from 0 to 255"),
    "priority high": ({"priority": 256}, "priority is 256; expected a whole number from 0 to"),
    "priority true": ({"priority": True}, "priority is True; expected a whole number"),
    "priority text": ({"priority": "5"}, "priority is '5'; expected a whole number"),
    "expires true": ({"expires": True}, "expires is True; expected seconds after the due time"),
    "expires nan": ({"expires": float("nan")}, "expires is nan; expected seconds after the due"),
    "expires bytes": ({"expires": b"1"}, "expires is b'1'; expected seconds after the due time"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_edit_is_refused_in_a_sentence_and_changes_nothing(add, delayq, name):
    changes, words = BAD[name]
    result = add.delay_until(FAR, 1)
    before = delayq.get(result)

    for edit in (lambda **given: delayq.edit(result, **given), result.edit):
        with pytest.raises(InvalidOption) as caught:
            edit(**changes)
        assert str(caught.value).startswith(words)

    assert delayq.get(result) == before


def test_a_text_that_is_no_time_is_refused(add, delayq):
    result = add.delay_until(FAR, 1)
    with pytest.raises(InvalidDueTime, match="'soon' is not a due time"):
        delayq.edit(result, expires="soon")


# Arguments that may not be read, or are signed.


def test_arguments_that_this_app_may_not_read_stay_and_the_rest_can_be_edited(delayq_app, url):
    app = delayq_app(url, accept_content=["json"])
    app.send_task("t", (1,), task_id="a", serializer="pickle", delayq_at=FAR)
    body = envelope(app.delayq, "a").raw["body"]

    with pytest.raises(InvalidOption, match="whose arguments this app accepts"):
        app.delayq.edit("a", kwargs={})

    assert app.delayq.edit("a", priority=3, expires=5)
    assert envelope(app.delayq, "a").raw["body"] == body


# Revisions, and concurrent changes of the task.


@pytest.fixture
def overtaking(between):
    """Let another caller change the task between an edit's read and its write, so many times."""

    def overtake(times, change):
        left, changing = iter(range(times)), []

        def overtaken():
            if not changing and next(left, None) is not None:
                changing.append(True)
                change()
                changing.clear()

        between.before("rewrite", overtaken)

    return overtake


def test_an_edit_that_is_overtaken_is_made_anew_of_the_present_task(add, delayq, overtaking):
    result, theirs = add.delay_until(FAR, 1, y=2), iter(range(3))
    overtaking(3, lambda: delayq.edit(result, kwargs={"y": next(theirs)}))

    assert delayq.edit(result, args=[5]) is Outcome.DONE
    assert (delayq.get(result).args, delayq.get(result).kwargs) == ((5,), {"y": 2})


def test_an_edit_with_a_revision_is_not_made_anew(add, delayq, overtaking):
    result = add.delay_until(FAR, 1)
    revision = delayq.get(result).revision
    overtaking(1, lambda: delayq.reschedule(result, by=1))

    assert delayq.edit(result, args=[5], if_revision=revision) is Outcome.UNCHANGED
    assert delayq.get(result).args == (1,)


def test_a_task_that_comes_between_look_and_step_is_edited(app, delayq, overtaking):
    overtaking(1, lambda: app.send_task("t", (1,), task_id="a", delayq_at=FAR))

    assert delayq.edit("a", args=[5]) is Outcome.DONE
    assert delayq.get("a").args == (5,)


# The outcome.


def test_a_relayed_task_goes_by_its_new_priority(delayq_app, url, redis_server, redis):
    app = delayq_app(url, delayq_url=redis_server.url(1))
    app.send_task("t", (1,), task_id="a", queue=Queue("mail"), delayq_at=LONG_AGO)

    assert app.delayq.edit("a", args=[2], priority=6)

    app.delayq.hand_over()
    key, raw = only_message(redis)
    assert (key, json.loads(raw)["properties"]["priority"]) == (b"mail\x06\x166", 6)
    assert json.loads(raw)["headers"]["argsrepr"] == "[2]"


def test_an_edit_with_task_always_eager_is_too_late(app, add):
    app.conf.task_always_eager = True
    result = add.delay_until(FAR, 1)

    assert result.edit(args=[2]) is Outcome.HANDED_OVER
    with pytest.raises(InvalidOption):
        result.edit(args=5)


def test_the_host_that_scheduled_it_is_known(add, delayq):
    result = add.delay_until(FAR, 1)

    assert delayq.get(result).host == envelope(delayq, result.id).headers["origin"]
    assert "@" in delayq.get(result).host
