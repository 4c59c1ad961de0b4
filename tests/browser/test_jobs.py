"""The fifteen jobs of an operator, each with the most clicks that it may take.

What is typed counts as no click, and Enter sends a search. No page on the way may refuse anything.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.app.support import redis_ms
from tests.browser import shop

CART, DEAD = shop.id_of(0), shop.id_of(37)
WAITING = 12


class Hand:
    """A user of a page, who counts the clicks, and looks at each page for a refusal."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    def click(self, role, name, **where):
        """Click what has this role and name, and look at the page that comes."""
        self.take(self.page.get_by_role(role, name=name, **where).first)

    def take(self, there):
        """Click it, and look at the page that comes."""
        self.clicks += 1
        there.click()
        self.page.wait_for_load_state()
        self.looks()

    def search(self, text):
        """Type a search, and send it."""
        field = self.page.get_by_label("Search:", exact=False)
        field.fill(text)
        with self.page.expect_navigation():
            field.press("Enter")
        self.looks()

    def choose(self, action):
        """Choose a change of many, which is a click."""
        self.clicks += 1
        self.page.get_by_label("Change", exact=True).select_option(action)

    def looks(self):
        """Look for a refusal."""
        expect(self.page.locator(".wrong, .answer.not-done, [aria-invalid]")).to_have_count(0)

    def reads(self, text):
        """Wait until the page has a text."""
        expect(self.page.locator("main")).to_contain_text(text)


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, **shop.SETTINGS)


@pytest.fixture
def filled(app, redis):
    shop.fill(app, redis, waiting=WAITING)
    shop.set_rules(app)
    shop.scan_once(app)
    now = redis_ms(redis) / 1000
    for number in range(600, 660):
        app.send_task(
            "shop.remind_of_cart",
            (f"cart-{number}",),
            task_id=shop.id_of(number),
            queue="mail",
            delayq_at=now + 7200 + number,
            delayq_tags=["campaign:nov"],
        )


@pytest.fixture
def hand(filled, site, look):
    return Hand(look(site))


def test_1_what_a_customer_has_tomorrow(app, hand, redis):
    at = redis_ms(redis) / 1000 + 86_400
    app.send_task("shop.remind_of_cart", ("mine",), delayq_at=at, delayq_tags=["tenant:42"])
    app.send_task("shop.remind_of_cart", ("later",), delayq_at=at * 2, delayq_tags=["tenant:42"])
    hand.click("link", "Tasks", exact=True)
    hand.search("tag:tenant:42 due:tomorrow")
    hand.reads("mine")
    expect(hand.page.locator("main")).not_to_contain_text("later")
    assert hand.clicks <= 1


def test_2_why_a_task_does_not_run(hand):
    hand.click("link", "Tasks", exact=True)
    hand.search(shop.id_of(WAITING + 18))
    hand.reads("queue newsletter")
    assert hand.clicks <= 1


def test_3_and_4_one_is_cancelled_and_comes_back(app, hand):
    hand.click("link", "Tasks", exact=True)
    hand.search(CART)
    hand.click("button", "Cancel", exact=True)
    assert app.delayq.get(CART) is None
    assert hand.clicks <= 3
    hand.click("button", "Undo the cancel", exact=True)
    assert app.delayq.get(CART)
    assert hand.clicks <= 4


def test_5_a_campaign_is_cancelled_and_comes_back(app, hand):
    hand.click("link", "Tasks", exact=True)
    hand.search("tag:campaign:nov")
    hand.click("link", "Change all that match…")
    hand.choose("Cancel")
    hand.click("button", "All that match…")
    hand.click("button", "Cancel: 60 tasks")
    hand.reads("60 tasks were cancelled")
    assert app.delayq.get(shop.id_of(600)) is None
    assert hand.clicks <= 5
    hand.click("button", re.compile("^Undo"))
    hand.reads("60 tasks are back")
    assert hand.clicks <= 6


def test_6_a_campaign_is_moved_by_two_hours(app, hand):
    before = app.delayq.get(shop.id_of(600)).due
    hand.click("link", "Tasks", exact=True)
    hand.search("tag:campaign:nov")
    hand.click("link", "Change all that match…")
    hand.choose("Reschedule")
    hand.page.get_by_label("New due time", exact=True).fill("by:+2h")
    hand.click("button", "All that match…")
    hand.click("button", "Reschedule: 60 tasks")
    hand.reads("60 tasks were rescheduled")
    assert (app.delayq.get(shop.id_of(600)).due - before).total_seconds() == 7200
    assert hand.clicks <= 5


def test_7_one_is_moved_to_tomorrow_at_nine(app, hand):
    hand.click("link", "Tasks", exact=True)
    hand.search(CART)
    hand.page.get_by_label("New due time", exact=True).fill("tomorrow 9:00")
    hand.click("button", "Look at this time")
    hand.click("button", "Reschedule to then")
    hand.reads("was rescheduled")
    # Kolkata is UTC+5:30.
    assert f"{app.delayq.get(CART).due:%H:%M}" == "03:30"
    assert hand.clicks <= 3


def test_8_one_runs_now(hand):
    hand.click("link", "Tasks", exact=True)
    hand.search(CART)
    hand.click("button", "Run now", exact=True)
    hand.reads("was made due now")
    assert hand.clicks <= 2


def test_9_an_argument_is_edited(app, hand):
    hand.click("link", "Tasks", exact=True)
    hand.search(CART)
    hand.take(hand.page.locator("summary", has_text="Edit"))
    hand.page.get_by_label("Args", exact=True).fill('["cart-1"]')
    hand.click("button", "Edit", exact=True)
    assert list(app.delayq.get(CART).args) == ["cart-1"]
    assert hand.clicks <= 3


def test_10_a_queue_is_paused_and_comes_back_slowly(app, hand):
    hand.click("link", "Paused", exact=True)
    hand.page.get_by_label("Name of the queue or the task", exact=False).fill("mail")
    hand.click("button", "Pause", exact=True)
    hand.reads("queue mail is paused")
    assert hand.clicks <= 2
    row = hand.page.get_by_role("row", name="queue mail")
    row.get_by_label("At most, per second").fill("5")
    hand.take(row.get_by_role("button", name="Resume queue mail"))
    hand.reads("queue mail is resumed")
    assert hand.clicks <= 3


def test_11_a_dead_task_says_why_and_is_retried_or_removed(app, hand):
    hand.click("link", "Look at the dead")
    hand.reads("WRONGTYPE Operation against a key holding the wrong kind of value")
    hand.take(hand.page.get_by_role("link", name="track_parcel").first)
    hand.reads("WRONGTYPE")
    hand.click("button", "Retry", exact=True)
    hand.reads("was made due now")
    assert hand.clicks <= 3
    hand.click("link", "Dead", exact=True)
    hand.take(hand.page.get_by_role("link", name="track_parcel").first)
    hand.click("button", "Remove", exact=True)
    hand.reads("removed")
    assert hand.clicks <= 6


def test_12_who_cancelled_a_task(app, hand):
    with app.delayq.acting("maria"):
        app.delayq.cancel(CART)
    hand.click("link", "Tasks", exact=True)
    hand.search(CART)
    hand.reads("Cancelled by maria")
    hand.reads("cart-1000")
    assert hand.clicks <= 1


def test_13_a_key_that_a_delivered_task_holds_is_freed(app, hand, redis):
    held = {"delayq_key": "report:1", "delayq_unique_until": "finished"}
    app.send_task("shop.reorder", ("x",), delayq_at=redis_ms(redis) / 1000 - 1, **held)
    app.delayq.hand_over()
    hand.click("link", "Keys", exact=True)
    hand.reads("report:1")
    hand.take(hand.page.get_by_role("row", name="report:1").get_by_text("Free"))
    hand.click("button", "Free the key")
    assert app.delayq.holder(key="report:1") is None
    assert hand.clicks <= 3


def test_14_what_a_rule_does_next(hand):
    hand.click("link", "digest")
    hand.reads("0 9 * * mon-fri")
    assert hand.clicks <= 1


def test_15_the_minute_of_a_burst_and_its_size(app, hand, redis):
    minute = (redis_ms(redis) // 60_000 + 200) * 60
    burst = [(("x",), {}, minute + number / 10) for number in range(300)]
    app.delayq.schedule_many(app.tasks["shop.reorder"], burst)
    hand.page.reload()
    hand.take(hand.page.locator("#load").locator("..").locator("..").locator("a.peak"))
    peak = hand.page.locator("text.peak")
    expect(peak).to_contain_text(re.compile(r"^3\d\d at \d\d:\d\d$"))
    assert hand.clicks <= 1
