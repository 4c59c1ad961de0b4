"""A waiting task is fitted to other code: its task gets another name, its arguments a function."""

import base64
import json
import zlib

import pytest
from celery import chain, chord, group

from celery_delayq import Outcome
from celery_delayq.core.message.headers import LAUNCH
from celery_delayq.errors import InvalidOption
from celery_delayq.operations.selection import Before
from tests.app.conftest import app_with_results as app
from tests.app.support import FAR, LONG_AGO, envelope, lists

__all__ = ["app"]

NAMES = {"add": "plus"}
CANVASES = {
    "chain": lambda add: chain(add.s(1), add.s(2), add.s(3)),
    "group": lambda add: group(add.s(1), add.s(2)),
    "chord": lambda add: chord([add.s(1), add.s(2)], add.si(3)),
    "chord after a part": lambda add: chain(add.s(1), group(add.s(2), add.s(3)), add.si(4)),
    "map": lambda add: add.map([1, 2]),
    "part with links": lambda add: group(add.s(1).on_error(add.s()), add.s(2)),
    "part that waits": lambda add: group(add.s(1), add.s(2).set(delayq_after=60)),
}


@pytest.fixture(autouse=True)
def plus(app):
    @app.task(name="plus")
    def plus(x, y=0):
        return x + y

    return plus


def renamed(delayq, **options):
    return delayq.select(all=True).edit(task=NAMES, **options)


def names(value):
    """Each name of a task in a message, also in messages that it carries."""
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in ("task", "name"))
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from names(part)
    elif isinstance(value, str):
        yield from names(unpacked(value))


def unpacked(text):
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        data = base64.b64decode(text, validate=True)
        return json.loads(zlib.decompress(data) if data[:1] == b"x" else data)
    except ValueError:
        return None


def found_in(delayq, result):
    return {name for name in names(envelope(delayq, result.id).raw) if isinstance(name, str)}


def test_a_task_gets_the_name_of_another_and_goes_out_under_it(add, delayq, redis):
    result = delayq.schedule(add.s(1, y=2), at=LONG_AGO)

    assert delayq.edit(result, task="plus") is Outcome.DONE

    assert (delayq.get(result).task, delayq.get(result).kwargs) == ("plus", {"y": 2})
    assert delayq.select(task="plus").count() == 1
    assert delayq.select(task="add").count() == 0
    delayq.hand_over()
    [[message]] = lists(redis).values()
    assert json.loads(message)["headers"]["task"] == "plus"


def test_a_pause_of_its_new_name_holds_a_renamed_task(add, delayq):
    delayq.schedule(add.s(1), at=LONG_AGO)
    delayq.pause(task="plus")
    assert delayq.select(task="add").edit(task="plus") == 1
    assert delayq.hand_over() == 0


def test_a_name_moves_the_task_to_no_other_queue_and_a_queue_beside_it_does(app, add, delayq):
    app.conf.task_routes = {"plus": {"queue": "sums"}}
    stays = delayq.schedule(add.s(1), at=FAR)
    goes = delayq.schedule(add.s(1), at=FAR)
    delayq.edit(stays, task="plus")
    delayq.edit(goes, task="plus", queue="more")
    assert [delayq.get(each).queue for each in (stays, goes)] == ["celery", "more"]
    assert delayq.select(task="plus", queue="more").count() == 1


def test_a_mapping_renames_links_too_and_leaves_the_others(add, delayq):
    linked = delayq.schedule(add.s(1).on_error(add.s()), at=FAR)
    link = delayq.app.signature("other", link=[add.s(2)])
    of_others = delayq.schedule(link, at=FAR)
    stays = delayq.schedule(delayq.app.signature("other"), at=FAR)
    before = delayq.get(stays)

    count = renamed(delayq)

    assert (count, count.is_complete) == (2, True)
    assert found_in(delayq, linked) == {"plus"}
    assert found_in(delayq, of_others) == {"other", "plus"}
    assert delayq.get(stays) == before


def test_one_name_leaves_the_links_of_a_task(add, delayq):
    linked = delayq.schedule(add.s(1).on_error(add.s()), at=FAR)
    assert delayq.select(task="add").edit(task="plus") == 1
    assert found_in(delayq, linked) == {"add", "plus"}


@pytest.mark.parametrize("what", CANVASES)
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_all_parts_of_a_canvas_are_renamed(app, add, delayq, what, serializer):
    app.conf.update(task_serializer=serializer, accept_content=["json", "pickle"])
    result = CANVASES[what](add).delay_until(FAR)
    entry = next(iter(delayq.tasks()))
    if serializer == "json":
        assert "add" in found_in(delayq, entry)

    assert renamed(delayq) == 1

    if serializer == "json":
        assert not {name for name in found_in(delayq, entry) if name in ("add", "shop.add")}
        assert "plus" in found_in(delayq, entry)
    after = delayq.get(entry.id)
    assert "add" not in after.task
    assert after.is_canvas is (what != "map")
    assert delayq.cancel(result) is Outcome.DONE


def test_a_renamed_canvas_runs_its_new_task(app, add, delayq, redis, run_launch):
    chord([add.s(1), add.s(2)], add.si(3)).delay_until(LONG_AGO)
    assert renamed(delayq) == 1
    parts = run_launch()
    assert [part["task"] for part in parts] == ["plus", "plus"]


def test_the_event_of_a_renamed_part_has_its_new_name(app, add, delayq):
    app.conf.task_send_sent_event = True
    result = group(add.s(1), add.s(2)).delay_until(FAR)
    assert renamed(delayq) == 1
    assert "add" not in found_in(delayq, result)


@pytest.fixture
def run_launch(app, delayq, redis):
    from tests.app.test_canvas import run_message, sent

    def run():
        delayq.hand_over()
        [(key, [raw])] = lists(redis).items()
        redis.delete(key)
        run_message(app, raw)
        [parts] = sent(redis).values()
        return parts

    return run


def with_currency(args, kwargs):
    return None if "y" in kwargs else (args, {**kwargs, "y": 5})


def test_a_function_makes_the_arguments_anew_and_again_changes_none(add, delayq):
    for number in range(120):
        delayq.schedule(add.s(number), at=FAR)
    selection = delayq.select(task="add")

    would = selection.edit(change=with_currency, dry_run=True)
    assert all(task.kwargs == {} for task in delayq.tasks())
    count = selection.edit(change=with_currency)

    assert (would, count, count.first) == (120, 120, would.first)
    first = next(iter(selection))
    assert would.first[0] == Before(first.id, "add (0,) {}", "add (0,) {'y': 5}")
    assert len(would.first) == 5
    assert sorted((task.args, task.kwargs["y"]) for task in delayq.tasks(limit=200)) == [
        ((number,), 5) for number in range(120)
    ]
    assert delayq.select(task="add").edit(change=with_currency) == 0
    assert delayq.edit(first.id, change=with_currency) is Outcome.UNCHANGED


def test_tasks_that_do_not_fit_stay_and_are_told_one_by_one(add, delayq):
    bad = [delayq.schedule(add.s("bad"), at=FAR).id for _ in range(12)]
    good = delayq.schedule(add.s(1), at=FAR)

    def change(args, kwargs):
        if args == ["bad"]:
            raise LookupError("no such order")
        return args, kwargs | {"y": 1}

    for dry_run in (True, False):
        count = delayq.select(task="add").edit(change=change, dry_run=dry_run)
        assert (count, count.refused, count.is_complete) == (1, 12, False)
        assert [task_id for task_id, _ in count.why] == bad[:10]
        assert {why for _, why in count.why} == {"LookupError: no such order"}
    assert delayq.get(good).kwargs == {"y": 1}
    assert all(delayq.get(each).kwargs == {} for each in bad)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda *_: ((1, 2, 3), {}), "TypeError"),  # too many for the task
        (lambda *_: 5, "has to return (args, kwargs)"),
        (lambda *_: ("text", {}), "has to return (args, kwargs)"),
        (lambda *_: ([], []), "has to return (args, kwargs)"),
        (lambda *_: ([object()], {}), "EncodeError"),
        (lambda *_: (["x" * 2**20], {}), "MessageTooLarge"),
    ],
    ids=["does not fit", "no pair", "text", "no mapping", "no JSON", "too large"],
)
def test_what_a_function_makes_is_checked(app, add, delayq, change, says):
    app.conf.delayq_max_message = 100_000
    result = delayq.schedule(add.s(1), at=FAR)
    before = delayq.get(result)
    count = delayq.select(all=True).edit(change=change)
    assert (count, count.refused) == (0, 1)
    [(task_id, why)] = count.why
    assert (task_id, says in why) == (result.id, True)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever it is
        delayq.edit(result, change=change)
    assert delayq.get(result) == before


def test_arguments_that_the_new_task_does_not_take_are_refused(app, add, delayq):
    @app.task(name="none")
    def none():
        pass

    delayq.schedule(add.s(1), at=FAR)
    count = delayq.select(task="add").edit(task="none")
    assert (count, count.refused) == (0, 1)
    moved = delayq.select(task="add").edit(task="none", change=lambda *_: ((), {}))
    assert (moved, delayq.select(task="none").count()) == (1, 1)


def test_the_text_that_hides_arguments_hides_them_in_before_and_after(add, delayq):
    delayq.schedule(add.s("secret").set(argsrepr="(***)"), at=FAR)
    count = delayq.select(all=True).edit(task="plus", dry_run=True)
    assert count.first[0][1:] == ("add (***) {}", "plus (***) {}")


@pytest.mark.parametrize(
    "changes",
    [
        {"task": ""},
        {"task": 5},
        {"task": {}},
        {"task": {"add": ""}},
        {"task": {"add": 5}},
        {"task": "nowhere"},
        {"task": {"add": "nowhere"}},
        {"task": {LAUNCH: "plus"}},
        {"change": "add"},
        {"change": with_currency, "args": ()},
    ],
    ids=", ".join,
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_no_name_or_function_is_refused_before_anything(add, delayq, changes, dry_run):
    result = delayq.schedule(add.s(1), at=FAR)
    before = delayq.get(result)
    with pytest.raises(InvalidOption):
        delayq.select(all=True).edit(**changes, dry_run=dry_run)
    with pytest.raises(InvalidOption):
        delayq.edit(result, **changes)
    assert delayq.get(result) == before


def test_a_body_that_may_not_be_decoded_keeps_its_links_and_can_get_a_name(app, add, delayq):
    app.conf.update(task_serializer="pickle", accept_content=["pickle", "json"])
    result = delayq.schedule(add.s(1), at=FAR)
    app.conf.accept_content = ["json"]
    count = renamed(delayq)
    assert (count, count.refused) == (0, 1)
    assert delayq.select(task="add").edit(task="plus") == 1
    assert delayq.get(result).task == "plus"
