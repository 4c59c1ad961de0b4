"""``delayq.reconcile``: the waiting tasks of a tag are made to agree with rows."""

import asyncio
import math
import re
from datetime import datetime, timezone

import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from celery_delayq.core.servers.risks import NOTE, OK, WARNING
from celery_delayq.errors import InvalidDueTime, InvalidOption
from celery_delayq.operations import health
from tests.app.support import FAR, LONG_AGO
from tests.support.places import at
from tests.support.shards import each


def rows_of(*numbers, due=FAR):
    return [(f"order:{number}", due, (number,)) for number in numbers]


@pytest.fixture
def reconcile(delayq, add):
    """Reconcile the task ``add``, in earnest."""

    def call(rows, **options):
        return delayq.reconcile(add, rows, **{"tag": "order", "dry_run": False, **options})

    return call


@pytest.fixture
def waiting(delayq):
    """What waits: the due time and arguments by key."""
    return lambda: {
        task.key: (task.due.timestamp(), [*task.args], task.kwargs) for task in delayq.tasks()
    }


def counts(report):
    return {kind: number for kind, number in report.counts.items() if number}


def test_missing_rows_are_scheduled_once_and_then_agree(reconcile, waiting, delayq):
    rows = [("order:1", FAR, (1,)), ("order:2", FAR + 60, [2]), ("order:3", FAR, (3,), {"y": 4})]

    first = reconcile(rows)
    ids = {task.id for task in delayq.select(tag="order")}
    again = reconcile(iter(rows))

    assert (counts(first), counts(again)) == ({"scheduled": 3}, {"unchanged": 3})
    assert waiting() == {
        "order:1": (FAR, [1], {}),
        "order:2": (FAR + 60, [2], {}),
        "order:3": (FAR, [3], {"y": 4}),
    }
    assert (
        {task.id for task in delayq.tasks()}
        == ids
        == {case.id for case in first.first["scheduled"]}
    )
    assert (bool(first), first.drift, first.remaining, again.drift) == (True, 3, 0, 0)


def test_another_time_and_other_arguments_are_changed_under_the_same_id(reconcile, waiting, delayq):
    reconcile(rows_of(1, 2, 3))
    ids = {task.key: task.id for task in delayq.tasks()}

    report = reconcile([
        ("order:1", FAR + 60, (1,)), ("order:2", FAR, (2,), {"y": 5}), ("order:3", FAR + 60, (4,)),
    ])  # fmt: skip

    assert counts(report) == {"changed": 3}
    assert [case.why for case in report.first["changed"]] == [
        "due 2100-01-01 00:00:00 UTC, not 2100-01-01 00:01:00 UTC",
        "other arguments",
        "due 2100-01-01 00:00:00 UTC, not 2100-01-01 00:01:00 UTC; other arguments",
    ]
    assert waiting() == {
        "order:1": (FAR + 60, [1], {}),
        "order:2": (FAR, [2], {"y": 5}),
        "order:3": (FAR + 60, [4], {}),
    }
    assert {task.key: task.id for task in delayq.tasks()} == ids


def test_arguments_are_compared_as_they_are_sent(reconcile):
    moment = datetime(2030, 1, 31, tzinfo=timezone.utc)
    rows = [("order:1", FAR, ((1, 2), {"b": 1, "a": moment})), ("order:2", FAR, ("\u00fc\n",))]
    reconcile(rows)

    (key, due, (pair, more)), *others = rows
    same = [(key, due, [pair, dict(reversed(more.items()))]), *others]

    assert counts(reconcile(same)) == {"unchanged": 2}


def test_a_task_under_the_key_without_the_tag_gets_it(reconcile, delayq, add):
    add.apply_async((1,), delayq_at=FAR, delayq_key="order:1", delayq_tags=["own"])

    report = reconcile(rows_of(1), most=0)

    assert counts(report) == {"tagged": 1}
    assert {*delayq.get(key="order:1").tags} == {"own", "order"}


def test_of_two_times_in_the_past_either_is_now(reconcile):
    reconcile(rows_of(1, due=LONG_AGO), late=True)

    assert counts(reconcile(rows_of(1, due=LONG_AGO + 60), late=True)) == {"unchanged": 1}


def test_a_tag_is_not_taken_for_another_part_of_the_record(reconcile, delayq, add):
    policy = "60000:0000000000000"  # a grace of a minute, as a record has it
    delayq.schedule(add.s(1), at=FAR, key="order:1", late="skip", grace=60)

    assert counts(reconcile(rows_of(1), tag=policy)) == {"tagged": 1}
    assert delayq.get(key="order:1").tags == (policy,)


def test_only_a_reconcile_with_remove_cancels_what_has_no_row(reconcile, waiting, delayq, add):
    reconcile(rows_of(*range(5)))
    add.apply_async((1,), delayq_at=FAR, delayq_tags=["order"])
    delayq.app.send_task("other", delayq_at=FAR, delayq_key="x", delayq_tags=["order"])
    add.apply_async((1,), delayq_at=FAR, delayq_key="y")

    stays = reconcile(rows_of(0, 1, 2))
    gone = reconcile(rows_of(0, 1, 2), remove=True)

    assert counts(stays) == {"unchanged": 3}
    assert counts(gone) == {"unchanged": 3, "cancelled": 2, "no_key": 1}
    assert {*waiting()} == {"order:0", "order:1", "order:2", "", "x", "y"}


def test_a_dry_run_is_the_default_and_says_what_it_would_do(delayq, add, reconcile, waiting):
    reconcile(rows_of(1, 2))
    rows = [("order:1", FAR + 1, (1,)), ("order:3", FAR, (3,))]
    before = waiting()

    report = delayq.reconcile(add, rows, tag="order", remove=True)

    assert counts(report) == {"changed": 1, "scheduled": 1, "cancelled": 1}
    assert (report.dry_run, report.remaining, bool(report)) == (True, 3, False)
    assert waiting() == before
    assert counts(reconcile(rows, remove=True)) == counts(report)


def test_what_left_is_left_alone_however_it_left(reconcile, waiting, delayq):
    reconcile(rows_of(1, 2, 3, 4))
    delayq.cancel(key="order:1")
    delayq.run_now(key="order:2")
    delayq.hand_over()

    report = reconcile(rows_of(1, 2, 3, 4))

    assert counts(report) == {"was_cancelled": 1, "was_delivered": 1, "unchanged": 2}
    assert {*waiting()} == {"order:3", "order:4"}
    assert (report.remembers.total_seconds(), bool(report)) == (3600, True)


def test_a_row_that_is_past_due_is_left_alone_unless_late(reconcile, waiting):
    reconcile(rows_of(1))
    rows = rows_of(1, 2, due=LONG_AGO)

    early, dry = reconcile(rows), reconcile(rows, late=True, dry_run=True)

    assert (counts(early), waiting().keys()) == ({"past_due": 2}, {"order:1"})
    assert counts(dry) == {"changed": 1, "scheduled": 1}
    assert counts(reconcile(rows, late=True)) == counts(dry)
    assert counts(reconcile(rows, late=True)) == {"unchanged": 2}


def test_a_key_of_another_task_is_told_and_stays(reconcile, delayq):
    delayq.app.send_task("other", delayq_at=FAR, delayq_key="order:1", delayq_tags=["order"])

    report = reconcile(rows_of(1), remove=True)

    assert counts(report) == {"other_task": 1}
    assert (report.remaining, bool(report), delayq.get(key="order:1").task) == (1, False, "other")


def test_a_dead_task_and_one_whose_key_is_held_are_left_alone(reconcile, delayq, add):
    at(delayq, "dead", "a", delayq_key="order:1", name="add")
    held = {"delayq_key": "order:2", "delayq_unique_until": "finished"}
    add.apply_async((2,), delayq_at=LONG_AGO, **held)
    add.apply_async((3,), delayq_at=LONG_AGO, **held | {"delayq_key": "order:3"})
    delayq.hand_over()
    add.apply_async((3,), delayq_at=FAR, **held | {"delayq_key": "order:3"},
                    delayq_conflict="replace")  # fmt: skip

    assert counts(reconcile(rows_of(1, 2, 3, due=FAR + 1))) == {"dead": 1, "held": 2}


def test_the_bound_is_on_changes_and_cancels_never_on_what_is_added(reconcile, waiting):
    reconcile(rows_of(*range(30)))
    rows = [*rows_of(*range(20), due=FAR + 9), *rows_of(*range(100, 150))]

    report = reconcile(rows, most=15, remove=True)

    assert counts(report) == {"changed": 15, "beyond": 15, "scheduled": 50}
    assert (report.is_stopped, report.remaining, bool(report)) == (True, 15, False)
    assert len(waiting()) == 80
    assert counts(reconcile(rows, most=math.inf, remove=True)) == {
        "unchanged": 65, "changed": 5, "cancelled": 10,
    }  # fmt: skip


@pytest.mark.parametrize(("waiting_now", "most"), [(0, 10), (100, 10), (250, 25)])
def test_the_bound_is_a_tenth_of_what_is_under_the_tag_and_at_least_ten(
    reconcile, waiting_now, most
):
    reconcile(rows_of(*range(waiting_now)))
    assert reconcile([]).most == most


def test_an_empty_query_and_one_that_raises_cancel_nothing(reconcile, waiting, delayq, caplog):
    reconcile(rows_of(1, 2))

    def failing():
        yield from rows_of(*range(10, 1010))
        yield from rows_of(1)
        raise ConnectionResetError("the database went away")

    empty = reconcile([], remove=True)
    with pytest.raises(ConnectionResetError) as raised:
        reconcile(failing(), remove=True)

    assert (counts(empty), empty.kept) == ({}, "there were no rows")
    assert "no task under tag order was cancelled: there were no rows" in caplog.text
    report = raised.value.so_far
    assert (counts(report), report.rows, report.is_complete) == ({"scheduled": 1000}, 1000, False)
    assert len(waiting()) == 1002


BAD = {
    "no tuple": (7, InvalidOption, "row is 7; expected (key, due)"),
    "text": ("order:9", InvalidOption, "row is 'order:9'; expected (key, due)"),
    "one field": (("order:9",), InvalidOption, "expected (key, due)"),
    "five fields": (("order:9", FAR, (1,), {}, 1), InvalidOption, "expected (key, due)"),
    "no key": ((None, FAR, (1,)), InvalidOption, "key is None; expected text of 1 to 255"),
    "an empty key": (("", FAR, (1,)), InvalidOption, "key is ''; expected text"),
    "a number as key": ((9, FAR, (1,)), InvalidOption, "key is 9; expected text"),
    "no time": (("order:9", None, (1,)), InvalidDueTime, "None"),
    "a delay": (("order:9", 60, (1,)), InvalidDueTime, "60"),
    "args": (("order:9", FAR, 1), InvalidOption, "args is 1; expected a list or a tuple"),
    "kwargs": (("order:9", FAR, (1,), [1]), InvalidOption, "kwargs is [1]; expected a mapping"),
    "arguments that do not fit": (("order:9", FAR, (1,), {"z": 1}), TypeError, "z"),
    "too few": (("order:9", FAR), TypeError, "x"),
    "what no serializer takes": (("order:9", FAR, (object(),)), Exception, "object"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_row_has_an_error_of_its_own_and_spoils_no_other(reconcile, waiting, bad):
    row, error, says = BAD[bad]
    report = reconcile([*rows_of(1), row, *rows_of(2)])

    assert counts(report) == {"scheduled": 2, "refused": 1}
    (case,) = report.first["refused"]
    assert (case.place, isinstance(case.error, error), says in case.why) == (1, True, True), case
    assert {*waiting()} == {"order:1", "order:2"}
    assert not report


class OutOfTime:
    """A row during which the time limit of the calling task ends."""

    def __iter__(self):
        raise SoftTimeLimitExceeded


def test_a_time_limit_is_no_error_of_a_row(reconcile, waiting):
    with pytest.raises(SoftTimeLimitExceeded) as raised:
        reconcile([*rows_of(*range(1000)), OutOfTime(), *rows_of(2000)], remove=True)

    assert counts(raised.value.so_far) == {"scheduled": 1000}
    assert len(waiting()) == 1000


def test_a_second_row_of_a_key_is_refused_in_one_page_and_across_pages(reconcile, waiting):
    rows = [*rows_of(*range(1001)), *rows_of(1000, 0, due=FAR + 1)]

    report = reconcile(rows)

    assert counts(report) == {"scheduled": 1001, "refused": 2}
    assert [case.place for case in report.first["refused"]] == [1001, 1002]
    assert "a key that no row before has" in report.first["refused"][0].why
    assert waiting()["order:0"][0] == FAR


def test_a_row_that_was_refused_keeps_its_task_and_one_without_a_key_keeps_all(reconcile, waiting):
    reconcile(rows_of(1, 2, 3))

    refused = reconcile([*rows_of(1), ("order:2", None)], remove=True)
    keyless = reconcile([*rows_of(1), (None, FAR)], remove=True)

    assert counts(refused) == {"unchanged": 1, "refused": 1, "cancelled": 1}
    assert counts(keyless) == {"unchanged": 1, "refused": 1}
    assert keyless.kept == "a row has no key, so its task is not known"
    assert {*waiting()} == {"order:1", "order:2"}


@pytest.mark.parametrize(
    "given",
    [
        {"task": "unknown"}, {"task": 7}, {"tag": ""}, {"tag": 7}, {"rows": 7}, {"most": -1},
        {"most": 1.5}, {"most": True}, {"remove": "yes"}, {"dry_run": None}, {"late": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_bad_call_is_refused_before_anything_is_written(delayq, add, waiting, given):
    call = {"task": add, "rows": rows_of(1), "tag": "order", "dry_run": False, **given}
    with pytest.raises(InvalidOption):
        delayq.reconcile(call.pop("task"), call.pop("rows"), **call)
    assert waiting() == {}


def test_a_task_goes_by_its_name_and_one_of_another_app_does_not(delayq, add, redis_url):
    assert delayq.reconcile("add", rows_of(1), tag="order").scheduled == 1
    with Celery("stranger", broker=redis_url, set_as_current=False) as stranger:

        @stranger.task(name="theirs")
        def theirs():
            pass

        with pytest.raises(InvalidOption, match="another app"):
            delayq.reconcile(theirs, rows_of(1), tag="order")


def test_a_naive_time_is_in_the_zone_of_the_app(delayq_app, url):
    app = delayq_app(url, timezone="Asia/Tokyo")

    @app.task
    def t():
        pass

    row = ("order:1", datetime(2100, 1, 1, 9))  # noqa: DTZ001 - it is naive
    assert app.delayq.reconcile(t, [row], tag="order", dry_run=False).scheduled == 1
    assert app.delayq.get(key="order:1").due.timestamp() == FAR


def test_what_was_changed_after_the_rows_were_read_waits_for_the_next_time(
    reconcile, waiting, delayq, add
):
    reconcile(rows_of(1, 2, 3))

    def slow():
        yield from rows_of(1)
        delayq.reschedule(key="order:1", at=FAR + 60)
        add.apply_async((4,), delayq_at=FAR, delayq_key="order:4", delayq_tags=["order"])
        yield from rows_of(2)

    report = reconcile(slow(), remove=True)

    assert counts(report) == {"recent": 1, "unchanged": 1, "cancelled": 1}
    assert {key: due for key, (due, *_) in waiting().items()} == {
        "order:1": FAR + 60, "order:2": FAR, "order:4": FAR,
    }  # fmt: skip
    later = reconcile(rows_of(1, 2), since=LONG_AGO, remove=True)
    assert counts(later) == {"recent": 2, "unchanged": 1}


def test_what_a_reconcile_cancelled_and_moved_comes_back_by_its_name(delayq_app, url):
    app = delayq_app(url, delayq_undo=(60, 100))

    @app.task(name="add")
    def add(x):
        pass

    def reconcile(rows):
        return app.delayq.reconcile(add, rows, tag="order", remove=True, dry_run=False)

    assert app.delayq.undo_all(reconcile(rows_of(1, 2, 3)).bulk).done == 0
    report = reconcile([("order:1", FAR + 60, (1,)), *rows_of(2)])
    undone = app.delayq.undo_all(report.bulk)

    assert (counts(report), undone.done, bool(undone)) == (
        {"changed": 1, "unchanged": 1, "cancelled": 1}, 2, True,
    )  # fmt: skip
    assert {task.key: task.due.timestamp() for task in app.delayq.tasks()} == {
        f"order:{number}": FAR for number in (1, 2, 3)
    }


def test_a_task_that_would_run_at_once_is_refused(delayq_app, url):
    app = delayq_app(url, task_always_eager=True)
    ran = []

    @app.task(name="add")
    def add(x):
        ran.append(x)

    with pytest.raises(InvalidOption, match="task_always_eager is True"):
        app.delayq.reconcile(add, rows_of(1), tag="order", dry_run=False)
    assert ran == []


def test_a_reconcile_can_be_awaited(delayq, add):
    report = asyncio.run(delayq.areconcile(add, rows_of(1), tag="order", dry_run=False))
    assert counts(report) == {"scheduled": 1}


def test_a_report_shows_what_was_done_and_progress_follows_each_page(reconcile):
    seen = []
    report = reconcile(rows_of(*range(1001)), progress=lambda so_far: seen.append(so_far.rows))
    assert repr(report) == "<Reconciled 'order': 1001 rows; 1001 scheduled>"
    assert (seen, len(report.first["scheduled"])) == ([1000, 1001], 10)


def meanwhile(between, script, act, *, times=1):
    """Act after the first calls of a script, which has read or written by then."""
    left = [times]

    def once():
        if left[0]:
            left[0] -= 1
            act()

    between.after(script, once)


MEANWHILE = {
    "scheduled": lambda _, add: add.apply_async((1,), delayq_at=FAR + 5, delayq_key="order:1"),
    "scheduled and cancelled": lambda delayq, add: (
        add.apply_async((1,), delayq_at=FAR + 5, delayq_key="order:1"),
        delayq.cancel(key="order:1"),
    ),
    "scheduled and delivered": lambda delayq, add: (
        add.apply_async((1,), delayq_at=LONG_AGO, delayq_key="order:1"),
        delayq.hand_over(),
    ),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_row_whose_task_comes_or_goes_before_it_is_scheduled_comes_not_twice(  # noqa: PLR0917
    between, reconcile, waiting, delayq, add, what
):
    meanwhile(between, "keyed", lambda: MEANWHILE[what](delayq, add))

    report = reconcile(rows_of(1, 2))

    assert counts(report) == {"recent": 1, "scheduled": 1}
    assert waiting().get("order:1", (FAR + 5,))[0] == FAR + 5


CHANGED = {
    "moved": lambda delayq: delayq.reschedule(key="order:1", at=FAR + 5),
    "edited": lambda delayq: delayq.edit(key="order:1", args=(5,)),
    "cancelled": lambda delayq: delayq.cancel(key="order:1"),
    "delivered": lambda delayq: (delayq.run_now(key="order:1"), delayq.hand_over()),
    "replaced": lambda delayq: delayq.app.tasks["add"].apply_async(
        (6,), delayq_at=FAR + 6, delayq_key="order:1", delayq_conflict="replace"
    ),
}


@pytest.mark.parametrize("what", CHANGED)
@pytest.mark.parametrize(
    "row",
    [("order:1", FAR + 60, (1,)), ("order:1", FAR, (9,)), ("order:1", FAR + 60, (9,)), None],
    ids=["to move", "to edit", "to edit and move", "to cancel"],
)
def test_a_task_that_changes_before_its_change_is_left_as_it_is(  # noqa: PLR0917
    between, reconcile, waiting, delayq, what, row
):
    reconcile(rows_of(1))
    after = []

    def change():
        CHANGED[what](delayq)
        after.append(waiting())

    meanwhile(between, "keyed" if row else "peek", change)

    report = reconcile([row] if row else rows_of(2, due=LONG_AGO), remove=True)

    assert report.counts["recent"] == report.rows == 1, report
    assert [waiting()] == after


@pytest.mark.parametrize("what", CHANGED)
def test_a_task_that_changes_between_its_edit_and_its_move_is_not_moved(
    between, reconcile, waiting, delayq, what
):
    reconcile(rows_of(1))
    after = []

    def change():
        CHANGED[what](delayq)
        after.append(waiting())

    edits = []
    between.after("rewrite", lambda: edits.append(1) or (len(edits) == 1 and change()))

    report = reconcile([("order:1", FAR + 60, (9,))])

    assert counts(report) == {"recent": 1}
    assert report.first["recent"][0].why == "edited, and not moved: it changed meanwhile"
    assert [waiting()] == after


def test_two_at_once_add_nothing_twice(between, reconcile, waiting):
    meanwhile(between, "keyed", lambda: reconcile(rows_of(*range(300))))

    report = reconcile(rows_of(*range(300)))

    assert report.counts["recent"] + report.unchanged == 300
    assert len(waiting()) == 300


def test_a_key_that_names_a_task_without_it_has_none(reconcile, add, redis):
    other = add.apply_async((1,), delayq_at=FAR, delayq_key="other")
    for holders in each("holders"):
        redis.hset(holders, "order:1", other.id)

    assert counts(reconcile(rows_of(1))) == {"scheduled": 1}


LAST = "the last reconcile of tag"


def lines(delayq):
    """What health says of reconciles, all at the time of their notes."""
    found = [line for line in health.lines(delayq.services) if line.name == "reconcile"]
    return [(line.level, re.sub(r"\d+ s ago", "0 s ago", line.found)) for line in found]


def test_health_tells_of_the_last_reconcile_of_each_tag(reconcile, delayq):
    assert lines(delayq) == []
    reconcile(rows_of(1, 2))
    reconcile(rows_of(1), tag="other", dry_run=True)
    assert lines(delayq) == [
        (NOTE, f"{LAST} order, 0 s ago, read 2 rows, and mended 2 differences"),
        (WARNING, f"{LAST} other, 0 s ago, a dry run, left 1 difference"),
    ]

    reconcile(rows_of(1), tag="other")
    with pytest.raises(ZeroDivisionError):
        reconcile(1 / 0 for _ in range(1))

    ended = f"{LAST} order, 0 s ago, ended after 0 rows with ZeroDivisionError"
    assert lines(delayq)[0] == (WARNING, ended)
    assert lines(delayq)[1][0] == NOTE
    reconcile(rows_of(1, 2))
    assert lines(delayq)[0] == (OK, f"{LAST} order, 0 s ago, read 2 rows")


def test_only_the_latest_tags_are_noted(delayq):
    for tag in "abcb":
        delayq.services.entries.note_reconciled(tag, tag, 2)
    found = delayq.counts().reconciled
    assert sorted((tag, line.split()[1]) for tag, line in found) == [("b", "b"), ("c", "c")]
