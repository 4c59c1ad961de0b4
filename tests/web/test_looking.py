"""The views beside the lists: the overview, a task, the history, counts by queue, charts."""

import html
import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from celery_delayq.contrib.web import words
from tests.app.support import FAR, LONG_AGO
from tests.web.conftest import IDS
from tests.web.support import FURTHER, counted, ticks, walk, worked

# The overview.


def test_the_overview_has_counts_queues_and_problems(browser, scheduled):
    scheduled("a", queue="mail")
    scheduled("b", at=LONG_AGO)
    page = browser.get("/")
    assert page.status == 200
    assert page.title.endswith("Overview · tests")
    assert "Waiting 2 Overdue 1 " in page.text
    assert "mail 1 0" in page.text
    assert "No scanner is alive: no tasks are delivered" in page.text


def test_the_overview_has_five_events_and_has_them_last(browser, many):
    page = browser.get("/")
    assert page.text.index("Scanners") < page.text.index("Last events")
    assert page.html.count('<span class="badge ">scheduled</span>') == 5


def test_the_overview_has_the_rules_that_run_next(app, browser):
    assert "next runs" not in browser.get("/").text
    now = datetime.now(timezone.utc)
    for hours in range(1, 7):
        at = now + timedelta(hours=hours)
        schedule = f"{at.minute} {at.hour} * * *"
        app.delayq.every(f"rule-{hours}", app.tasks["shop.remind"].s(1), schedule)
    page = browser.get("/")
    assert re.findall(r'href="/rules\?only=(rule-\d)"', page.html) == [
        f"rule-{hours}" for hours in range(1, 5)
    ]
    assert "All 6 rules" in page.text


def test_the_overview_marks_the_dead_and_leads_to_them(browser, task, die):
    assert "Look at the dead" not in browser.get("/").text
    die("dead")
    page = browser.get("/")
    marked = r'<div class="red"><dt>Dead</dt><dd><a href="/tasks\?state=DEAD">1<'
    assert re.search(marked, page.html)
    assert '<div class="zero"><dt>In flight</dt>' in page.html
    [alarm] = [one for one in page.html.split('<li class="alarm red">') if "Dead: 1<" in one]
    assert '<a class="button" href="/tasks?state=DEAD">Look at the dead</a>' in alarm


@pytest.mark.parametrize("history", [0, 100])
def test_the_alarm_of_dead_tasks_says_which_died_last_and_why(app, browser, die, history):
    app.conf.delayq_history = history
    die("dead")
    text = browser.get("/").text
    assert re.search(r"Dead: 1 shop\.remind: .*wrong kind of value.* Look at the dead", text)
    app.delayq.remove("dead")
    assert "wrong kind of value" not in browser.get("/").text


def test_the_overview_leads_to_tasks_that_no_worker_knew(browser, scheduled):
    assert "Look at these" not in browser.get("/").text
    scheduled("unknown", tags=["delayq:unknown"])
    page = browser.get("/")
    assert "Workers did not know 1 task" in page.text
    assert '<a class="button" href="/tasks?state=UNKNOWN">Look at these</a>' in page.html


# A task.


def test_the_page_of_a_task_has_its_facts_and_headers(browser, scheduled):
    task = scheduled("a", 42, key="k", tags=["blue"], queue="mail")
    page = browser.get("/task", id="a")
    assert page.title.endswith("shop.remind, scheduled · tests")
    assert "shop. remind a 42 scheduled due in " in page.text
    for text in ("args [ 42 ]", f"revision {task.revision}", "Key k Tags blue", "root_id a"):
        assert text in page.text


def test_the_facts_of_a_task_are_above_its_headers_and_beside_its_changes(browser, task):
    page = browser.get("/task?id=a")
    facts, details = map(page.text.index, ("Facts ", "Revision, host"))
    assert facts < details < page.text.index("revision ")
    left, right = page.html.partition('<div class="task-page">')[2].split("\n<div>\n")[1:3]
    assert '<h2 id="facts">' in left
    assert '<h2 id="change">' in right


def test_a_task_is_overdue_from_its_due_time_on_as_the_counts_have_it(scheduled):
    task = scheduled("a", at=FAR)
    assert words.state(task, task.due - timedelta(milliseconds=1)) == "scheduled"
    assert words.state(task, task.due) == "overdue"


def test_hidden_arguments_are_on_no_page(app, browse, scheduled):
    scheduled("a", "card-4711", key="k")
    shown, hidden = browse(app), browse(app, hide_arguments=True)
    for path in ("/tasks", "/task?id=a"):
        assert "card-4711" in shown.get(path).html
        assert "card-4711" not in hidden.get(path).html
    assert "args hidden kwargs hidden" in hidden.get("/task?id=a").text


def test_arguments_that_the_caller_hides_stay_hidden(app, browser):
    app.send_task("shop.remind", ("card-4711",), task_id="a", delayq_at=FAR, argsrepr="(***,)")
    assert "(***,)" in browser.get("/task?id=a").text
    assert "card-4711" not in browser.get("/task?id=a").html


def test_the_page_of_a_task_says_which_one_it_waits_behind_and_until_when(app, browser):
    held = {"key": "k", "unique_until": "finished", "conflict": "replace"}
    for task_id in ("A-first", "second"):
        app.delayq.schedule(app.signature("t").set(task_id=task_id), at=LONG_AGO, **held)
        app.delayq.hand_over()

    page = browser.get("/task", id="second")

    assert "scheduled, behind A-first" in page.text
    until = r"in [^(]+ \(.* UTC\)"
    waits = f"waits behind task A-first, which holds its key until {until} at the latest"
    assert re.search(rf"It {waits}\.", page.text)
    assert re.search(r"Behind until \d{4}-\d\d-\d\d ", page.text)
    moved = browser.change(page.action_with("Cancel"), action="run_now")
    assert moved.status == 200
    assert re.fullmatch(f"task second is due now, but {waits}", moved.said)


# The history.


def test_the_history_is_newest_first(app, browser, scheduled):
    scheduled("a", key="k")
    app.delayq.cancel("a")
    for path in ("/history", "/"):
        page = browser.get(path).text
        first, second = (f"{what} shop. remind a k" for what in ("cancelled", "scheduled"))
        assert page.index(first) < page.index(second)
    assert "The last 2 events. At most 100 of tasks are kept" in browser.get("/history").text
    assert "Among the last 100 events" in browser.get("/").text


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ({"action": "reschedule", "value": "by:+1h"}, "rescheduled"),
        ({"action": "cancel"}, "cancelled"),
    ],
    ids=["moved", "cancelled"],
)
def test_a_change_of_many_is_one_line_of_the_history_with_a_link_to_its_tasks(
    app, browser, many, action, what
):
    worked(browser, counted(browser, {}, **action))
    page = browser.get("/history")
    line = next(iter(app.delayq.history(1)))
    assert (line.what, line.count) == (what, len(IDS))
    assert f"{what} {len(IDS)} tasks alice" in " ".join(page.text.split())

    page = browser.get("/history", bulk=line.bulk)

    assert {task_id for task_id in IDS if task_id in page.text} == {*IDS}
    assert " scheduled task" not in page.text
    app.conf.delayq_history = 4
    app.delayq.services.entries.join()
    assert (
        f"Of {len(IDS)} tasks, 4 tasks are listed here"
        in browser.get("/history", bulk=line.bulk).text
    )


def test_ticked_tasks_that_are_changed_are_one_line(app, browser, many):
    ticked = ticks(browser.get("/tasks"))
    browser.change("/selected", sure="1", one=[*ticked.values()], action="run_now")
    assert [(one.what, one.count) for one in app.delayq.history(2)] == [
        ("run_now", len(IDS)), ("scheduled", 1),
    ]  # fmt: skip


def test_the_history_and_the_page_of_a_task_say_who_did_what(app, browser, scheduled):
    page, path = scheduled("a"), "/task?id=a"
    browser.change(f"{path}&revision={page.revision}", action="reschedule", value="by:+1h")
    browser.change("/paused", action="pause", kind="queue", name="mail")
    for number in range(3):
        scheduled(f"b{number}", tags=["x"])
    with app.delayq.acting("bob"):
        app.delayq.select(tag="x").reschedule(by=60)

    history = browser.get("/history").text
    assert "rescheduled 3 tasks bob" in history
    assert "paused queue mail alice" in history
    own = browser.get(path).text.partition("What happened to it")[2].partition("Revision, host")[0]
    assert re.search("rescheduled alice .* scheduled $", own)


def test_a_user_with_a_long_name_can_change_tasks(app, browse, task):
    browser = browse(app, user=lambda _: "a\n" + "x" * 10_000)
    assert browser.change("/task?id=a&revision=", action="run_now").status in {200, 409}
    [event, *_] = app.delayq.history()
    assert len(event.actor.encode()) <= 64


def test_no_history_is_said_to_be_kept_without_the_setting(app, browser):
    app.conf.delayq_history = 0
    assert browser.get("/history").said == "Nothing is kept: the setting delayq_history is 0."
    assert "Last events" not in browser.get("/").text


# Counts by queue, and the charts.


def test_all_waiting_tasks_are_counted_by_queue_in_steps(browser, scheduled, limits):
    limits(web_others_s=0, queues_step=4)
    for number in range(20):
        # Some fall due together: a step can end among them.
        scheduled(f"t{number}", queue=("mail", "slow", "fast")[number % 3], at=FAR + number // 7)

    [*steps, last] = walk(browser, browser.get("/queues"), FURTHER)

    seen = [int(re.search(r"(\d+) tasks? counted so far", page.text)[1]) for page in steps]
    assert len(seen) >= 4
    assert seen == sorted(seen)
    assert "20 tasks counted Waiting tasks by queue Queue Waiting fast 6 mail 7 slow 7" in last.text


def test_each_chart_has_the_tasks_of_its_spans(app, browser, scheduled):
    now = app.delayq.counts().now_ms / 1000
    for number, hours in enumerate((-4, 0.5, 0.5, 5, 100, 1000)):
        scheduled(f"task-{number}", at=now + 3600 * hours)
    page = browser.get("/").text
    for span, count in (("Next hour", 2), ("Next 24 hours", 3), ("Next week", 4)):
        assert f"{span}: {count} tasks" in page


BAR = r'<a href="([^"]*)" tabindex="-1"[^>]*><title>([^<]*)</title><rect ([^>]*)/>'


def bars(page):
    """The bars of a chart: where each leads, its title, and its begin."""
    found = re.findall(BAR, page.html)
    return [
        (html.unescape(url), title, datetime.fromisoformat(re.search('begin="(.*?)"', rect)[1]))
        for url, title, rect in found
    ]


def test_a_bar_leads_to_a_chart_of_its_day_then_of_its_hour_and_then_to_its_tasks(
    browser, scheduled
):
    scheduled("meant", at=FAR + 3 * 86_400 + 9 * 3600 + 90)
    scheduled("other", at=FAR + 3 * 86_400 + 9 * 3600 + 120)
    page = browser.get("/load?of=week&begin=2100-01-01")
    for parts in (["2 tasks"], ["2 tasks"], ["1 task", "1 task"]):
        found = bars(page)
        assert [title.partition(",")[0] for _, title, _ in found] == parts
        # The same as a table, for those who see no chart.
        table = page.html.partition("<tbody>")[2]
        assert [html.unescape(url) for url in re.findall('<a href="(.*?)"', table)] == [
            url for url, _, _ in found
        ]
        page = browser.get(found[0][0])
    assert page.ids == ["meant"]


def test_the_highest_bar_fills_the_chart_and_one_task_is_seen(scheduled, browser):
    for number in range(100):
        scheduled(f"many-{number}", at=FAR + 600)
    scheduled("one", at=FAR + 3000)
    page = browser.get("/load?begin=2100-01-01")
    assert re.findall(r'<rect [^>]*height="([\d.]+)%"', page.html) == ["100.0", "2.0"]


@pytest.mark.parametrize(
    ("query", "end", "count"),
    [
        ("of=hour&begin=2100-01-01T09:30", "2100-01-01T10:00", 60),
        ("of=day&begin=2100-01-01T09:30", "2100-01-02T00:00", 48),
        ("of=week&begin=2100-01-01T09:30", "2100-01-08T00:00", 56),
    ],
)
def test_a_chart_begins_with_its_span_of_the_clock(browser, scheduled, query, end, count):
    begin = "2100-01-01T09:00" if "hour" in query else "2100-01-01T00:00"
    page = browser.get(f"/load?{query}")
    shown = re.search(r'data-of="\w+" data-begin="([^"]*)" data-end="([^"]*)"', page.html).groups()
    assert shown == (f"{begin}:00+00:00", f"{end}:00+00:00")
    assert "No task falls due then." in page.text
    step = datetime.fromisoformat(end) - datetime.fromisoformat(begin)
    at = datetime.fromisoformat(begin).replace(tzinfo=timezone.utc).timestamp()
    scheduled("last", at=at + step.total_seconds() - 0.001)
    scheduled("before", at=at - 0.001)
    scheduled("after", at=at + step.total_seconds())
    [(_, title, first)] = bars(browser.get(f"/load?{query}"))
    assert title.startswith("1 task, ")
    assert (first.timestamp() - at) == pytest.approx(step.total_seconds() * (1 - 1 / count))
    for name, ids in (("Earlier", ["before"]), ("Later", ["after"])):
        beside = browser.get(page.url(rf'href="([^"]*)">\W*{name}'))
        assert bars(beside)[0][1].startswith(f"{len(ids)} task, ")


ZONES = ["Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Europe/Berlin", "UTC"]


@pytest.mark.parametrize("zone", ZONES)
def test_bars_begin_on_the_minutes_of_each_clock(app, browser, scheduled, zone):
    now = app.delayq.counts().now_ms / 1000
    for number in range(1, 20):
        scheduled(f"hour-{number}", at=now + number * 171)
        scheduled(f"day-{number}", at=now + number * 4321)
        scheduled(f"week-{number}", at=now + number * 30_001)
    page = browser.get("/", zone=zone)
    for of, minutes in (("hour", 1), ("day", 30), ("week", 180)):
        [here] = [
            one for one in page.html.split("<svg ")[1:]
            if f'data-of="{of}"' in one
        ]  # fmt: skip
        begins = [
            datetime.fromisoformat(text).astimezone(ZoneInfo(zone))
            for text in re.findall(r'<rect [^>]*data-begin="([^"]*)"', here)
        ]
        assert begins
        is_moved = {one.utcoffset() for one in begins} != {begins[0].utcoffset()}
        for begin in begins:
            at = 60 * begin.hour + begin.minute
            assert (begin.second, begin.microsecond, at % min(minutes, 30)) == (0, 0, 0)
            assert at % minutes == 0 or is_moved


# The days on which Berlin's clocks change: they have 23 and 25 hours.
@pytest.mark.parametrize(
    ("day", "after", "hours"), [("2100-03-28", "2100-03-29", 23), ("2100-10-31", "2100-11-01", 25)]
)
def test_a_day_on_which_the_clocks_change_is_whole_and_has_a_day_before_and_behind_it(
    browser, scheduled, day, after, hours
):
    zone = ZoneInfo("Europe/Berlin")
    begin, end = (datetime.fromisoformat(text).replace(tzinfo=zone) for text in (day, after))
    assert (end.timestamp() - begin.timestamp()) == 3600 * hours
    scheduled("last", at=end.timestamp() - 1)

    page = browser.get("/load", of="day", begin=f"{day} 12:00", zone="Europe/Berlin")

    shown = re.search(r'data-of="\w+" data-begin="([^"]*)" data-end="([^"]*)"', page.html).groups()
    assert [datetime.fromisoformat(text) for text in shown] == [begin, end]
    assert len(bars(page)) == 1
    marks = re.findall(r'<text class="mid"[^>]*>(\d\d:\d\d)</text>', page.html)
    assert marks == [f"{hour:02}:00" for hour in range(3, 24, 3)]
    later = browser.get(page.url(r'href="([^"]*)">Later'))
    assert f'data-begin="{end.astimezone(timezone.utc).isoformat()}"' in later.html
    back = browser.get(later.url(r'href="([^"]*)">\W*Earlier'))
    assert f'data-begin="{shown[0]}" data-end="{shown[1]}"' in back.html


def test_the_peak_is_labelled_with_its_minute_and_size(browser, scheduled):
    for number in range(3):
        scheduled(f"peak-{number}", at=FAR + 1740)
    scheduled("other", at=FAR + 60)
    page = browser.get("/load?begin=2100-01-01")
    assert re.search(r'<text class="peak mid"[^>]*>3 at 00:29</text>', page.html)
    assert "By minutes: 4 tasks; the most, 3 at 00:29 ." in page.text
    day = browser.get("/load?of=day&begin=2100-01-01").html
    assert re.search(r'<text class="peak start"[^>]*>4 from 00:00 to 00:30</text>', day)


def test_the_icon_shows_an_alarm_and_is_kept_by_its_hash(app, browser, scheduled, alive):
    icon = r'<link rel="icon" [^>]*href="(/static/(\w+)\.svg\?v=\w+)"'
    assert browser.get("/").url(icon).startswith("/static/alarm.svg")  # no scanner is alive
    alive(app)
    calm = browser.get("/").url(icon)
    assert calm.startswith("/static/icon.svg")
    assert browser.get(calm).headers["Content-Type"].startswith("image/svg+xml")
    app.delayq.pause(all=True)
    assert browser.get("/").url(icon) == calm


@pytest.mark.parametrize("zone", ["", "Asia/Kolkata", "Europe/Berlin"])
@pytest.mark.parametrize("time", ["11:15", "11:45"])
def test_a_half_hour_opens_the_hour_in_the_zone_of_the_viewer_that_has_it(
    browser, scheduled, zone, time
):
    scheduled("a", at=datetime.fromisoformat(f"2100-01-01T{time}:00+00:00").timestamp())
    [(url, *_)] = bars(browser.get("/load?of=day&begin=2100-01-01"))
    page = browser.get(f"{url}&zone={zone}")
    assert "1 task is due from" in page.text
