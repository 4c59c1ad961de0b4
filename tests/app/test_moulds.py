"""``delay_until`` again and again: when Celery makes the message, and when it is filled in."""

import os
from threading import Thread
from unittest import mock

import pytest
from celery import signals
from celery.app.amqp import AMQP

from celery_delayq import DelayQ
from celery_delayq.errors import NotHeld
from celery_delayq.scheduling import prepared as mould
from celery_delayq.scheduling import sender
from tests.app.support import FAR, comparable, envelope

ARGUMENTS = [
    ((), {}),
    ((1, 2.5, None, True), {}),
    (("Grüße", "a\nb", "it's", '"'), {"x": "y", "ключ": [1, {"n": ()}]}),
    (("plain", "a b-c_d.e@f:/", ""), {}),
    (('"', "'"), {}),
    (("\\", "\\n"), {}),
    (('it\'s \\ "so"',), {}),
    (("\x7f", "\t"), {}),
    (("\u00e9",), {}),
    ((float("inf"), -0.0, 1e300, False), {}),
    ((1,), {}),
    (("x" * 500,), {}),
    (("x" * 509, 1), {}),
    (tuple(range(150)), {}),
    (tuple(range(400)), {}),
    ((10**30, -(2**53) - 1), {"deep": [[[[[[1]]]]]]}),
    (("x" * 1200,), {}),
    (("x" * 5000,), {}),
]


def nothing(*args, **kwargs):
    pass


@pytest.fixture
def by_celery(monkeypatch):
    """The ids of the messages that Celery made."""
    made, prepared = [], sender._prepared
    monkeypatch.setattr(
        sender, "_prepared", lambda dq, message, args, options: (
            made.append(args[0]) or prepared(dq, message, args, options)
        )
    )  # fmt: skip
    return made


@pytest.fixture
def any_task(app):
    return app.task(name="any", typing=False)(nothing)


def held(task, *args, **kwargs):
    return task.delay_until(FAR, *args, **kwargs).id


def test_celery_makes_the_first_message_and_no_other(add, by_celery):
    ids = [held(add, number) for number in range(5)]
    assert by_celery == ids[:1]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS)
def test_what_is_filled_in_is_what_celery_would_have_made(any_task, delayq, args, kwargs):
    held(any_task, "first")
    filled_in = held(any_task, *args, **kwargs)
    by_celery = any_task.apply_async(args, kwargs, delayq_at=FAR).id
    assert without_id(delayq, filled_in) == without_id(delayq, by_celery)


def without_id(delayq, task_id):
    text = delayq.entries.find(task_id).message.decode()
    return comparable(text.replace(task_id, "the-id"))


def test_arguments_are_checked_as_before(add):
    held(add, 1)
    with pytest.raises(TypeError, match="positional argument"):
        held(add)


def test_large_arguments_are_left_to_celery_and_spoil_nothing(add, by_celery):
    ids = [held(add, "x" * size) for size in (5000, 1, 1, 5000, 1)]
    assert by_celery == [ids[0], ids[1], ids[3]]


@pytest.mark.parametrize("signal", [signals.before_task_publish, signals.after_task_publish])
def test_a_handler_sees_each_message(add, by_celery, signal):
    held(add, 1)
    seen = []

    def handler(headers=None, **_):
        seen.append(headers["id"])

    signal.connect(handler)
    try:
        ids = [held(add, 1), held(add, 2)]
    finally:
        signal.disconnect(handler)
    assert by_celery[1:] == seen == ids
    held(add, 1)
    assert by_celery[1:] == ids


def test_an_apply_async_that_was_replaced_meanwhile_is_called(add):
    held(add, 1)
    with mock.patch.object(add, "apply_async") as apply_async, pytest.raises(NotHeld):
        held(add, 2)
    assert apply_async.call_args.args == ((2,), {})


def test_a_send_task_that_was_replaced_meanwhile_is_called(add, app):
    held(add, 1)
    with mock.patch.object(app, "send_task", wraps=app.send_task) as send_task:
        held(add, 2)
    assert send_task.call_count == 1


def test_a_task_with_an_apply_async_of_its_own_is_left_to_it(app, by_celery):
    class Tagged(app.Task):
        def apply_async(self, args=None, kwargs=None, **options):
            return super().apply_async(args, kwargs, headers={"tag": args[0]}, **options)

    tagged = app.task(name="tagged", base=Tagged)(nothing)
    ids = [held(tagged, number) for number in range(3)]
    assert by_celery == ids
    assert [envelope(app.delayq, task_id).headers["tag"] for task_id in ids] == [0, 1, 2]


def test_a_task_that_names_itself_after_its_arguments_is_asked_each_time(app):
    class Named(app.Task):
        def shadow_name(self, args, kwargs, options):
            return f"named-{args[0]}"

    named = app.task(name="named", base=Named)(nothing)
    shadows = [envelope(app.delayq, held(named, number)).headers["shadow"] for number in range(3)]
    assert shadows == ["named-0", "named-1", "named-2"]


def test_a_router_is_asked_each_time(held_app, url):
    def by_argument(name, args, *_, **__):
        return {"queue": args[0]}

    app = held_app(url, task_routes=(by_argument,))
    task = app.task(name="routed")(nothing)
    ids = [held(task, queue) for queue in ("a", "b", "c")]
    assert [app.delayq.get(task_id).queue for task_id in ids] == ["a", "b", "c"]


def test_a_changed_configuration_makes_a_new_mould(add, app, by_celery):
    held(add, 1)
    app.conf.task_inherit_parent_priority = True
    ids = [held(add, 2), held(add, 3)]
    assert by_celery[1:] == ids[:1]


def test_a_setting_that_celery_reads_through_to_is_seen(held_app, url):
    class Settings:
        task_always_eager = False

    app = held_app(url)
    app.add_defaults(Settings)
    task = app.task(name="eager")(nothing)
    held(task, 1)
    Settings.task_always_eager = True
    assert task.delay_until(FAR, 2).state == "SUCCESS"


def test_ignore_result_is_what_the_task_says_now(add, delayq):
    held(add, 1)
    add.ignore_result = True
    result = add.delay_until(FAR, 2)
    assert result.ignored
    assert envelope(delayq, result.id).headers["ignore_result"]


def test_each_thread_has_its_own_reply_queue(add, delayq):
    first, ids = envelope(delayq, held(add, 1)), []
    thread = Thread(target=lambda: ids.extend(held(add, number) for number in range(2)))
    thread.start()
    thread.join()
    others = [envelope(delayq, task_id).properties["reply_to"] for task_id in ids]
    assert others[0] == others[1] != first.properties["reply_to"]


def test_a_forked_child_names_itself_as_the_origin(add, delayq):
    held(add, 1)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, held(add, 2).encode())
        os._exit(0)
    os.waitpid(child, 0)
    origin = envelope(delayq, os.read(reader, 100).decode()).headers["origin"]
    assert origin.startswith(f"gen{child}@")


def test_a_running_task_is_the_parent_of_what_it_schedules(add, app, delayq):
    first = held(add, 1)

    @app.task(name="parent")
    def parent():
        return held(add, 2)

    child = parent.apply(task_id="p", throw=True).result
    headers = [envelope(delayq, task_id).headers for task_id in (first, child, held(add, 3))]
    assert [(one["parent_id"], one["root_id"]) for one in headers] == [
        (None, headers[0]["id"]), ("p", "p"), (None, headers[2]["id"])
    ]  # fmt: skip


def test_an_expiry_counts_from_each_due_time(app, delayq):
    task = app.task(name="expiring", expires=60)(nothing)
    for due in (FAR, FAR + 1, FAR + 2):
        task_id = task.delay_until(due, 1).id
        seconds = envelope(delayq, task_id).headers["expires"][17:19]
        assert int(seconds) == due - FAR


def test_the_result_is_that_of_a_call(app_with_results):
    task = app_with_results.task(name="any")(nothing)
    first, second = task.delay_until(FAR, 1), task.delay_until(FAR, 2)
    assert vars(first).keys() == vars(second).keys()
    assert type(second) is type(first)
    assert second.state == "SCHEDULED"
    assert second.cancel()
    assert second.state == "REVOKED"


def test_an_amqp_of_ones_own_makes_each_message(make_app, url, by_celery):
    class OwnAMQP(AMQP):
        pass

    app = make_app(url)
    app.amqp_cls = OwnAMQP
    delayq = DelayQ(app)
    task = app.task(name="any")(nothing)
    assert by_celery == [held(task, 1), held(task, 2)]
    delayq.close()


def test_a_message_that_cannot_be_made_again_is_no_mould(add, by_celery, monkeypatch):
    monkeypatch.setattr(mould, "_described", lambda *_, **__: "something else")
    assert by_celery == [held(add, 1), held(add, 2)]
