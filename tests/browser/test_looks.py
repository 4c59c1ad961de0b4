"""How the pages look: on a phone, in the dark, to a screen reader, to a keyboard."""

import json
import re
from datetime import datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.app.support import FAR
from tests.browser import shop
from tests.browser.support import follow, says

TASK = f"/task?id={shop.id_of(1)}"
VIEWS = {
    "overview": "/",
    "task": TASK,
    "dead": "/tasks?state=DEAD",
    "rules": "/rules",
    "a rule to remove": "/rules?only=digest&asks=1",
    "paused": "/paused",
    "history": "/history",
    "queues": "/queues",
    "load": "/load?of=day",
    "a key": "/key?key=cart:1037",
    "no match": "/tasks?queue=mial",
    "an error": "/tasks?after=soon",
    "tasks": "/tasks?queue=billing",  # the last one: the next are reached from it
}
RULES = {"resultTypes": ["violations"]}


@pytest.fixture
def app(delayq_app, url):
    return delayq_app(url, **shop.SETTINGS)


@pytest.fixture
def filled(app, redis):
    shop.fill(app, redis, waiting=12)
    shop.set_rules(app)
    shop.scan_once(app)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_each_view_is_accessible_and_fits_the_width(app, filled, site, look, width, dark):  # noqa: PLR0917
    page = look(site, width=width, dark=dark, allows=["400", "404"])
    axe, found = Axe(), []

    def audit(name):
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        inner, outer = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert inner <= outer, f"{name} scrolls sideways"
        found.extend(
            (name, one["impact"], one["help"], [node["html"][:200] for node in one["nodes"]])
            for one in axe.run(page, options=RULES).response["violations"]
        )

    for name, path in VIEWS.items():
        page.goto(path)
        audit(name)
    page.get_by_role("checkbox", name="Tick all tasks on this page").check()
    page.get_by_label("Change", exact=True).select_option("Reschedule")
    audit("the ticked tasks with a time")
    page.get_by_label("Change", exact=True).select_option("Cancel")
    follow(page, page.get_by_role("button", name="Change the ticked…"))
    audit("the ticked tasks")
    page.go_back()
    follow(page, page.get_by_role("button", name="All that match…", exact=True))
    audit("all that match")
    follow(page, page.get_by_role("button", name="Cancel: "))
    audit("the last step")
    follow(page, page.get_by_role("button", name="Undo: "))
    audit("a task that is back")
    app.delayq.cancel(shop.id_of(1))
    page.goto(TASK)
    audit("a cancelled task")
    assert not found, json.dumps(found, indent=2)


@pytest.mark.parametrize("width", [1280, 360])
def test_the_change_of_many_stays_in_sight(filled, site, look, width):
    page = look(site, "/tasks", width=width)
    page.set_viewport_size({"width": width, "height": 500})
    button = page.get_by_role("button", name="Change the ticked…")
    expect(button).to_be_hidden()
    page.get_by_role("checkbox", name="Task ").last.check()
    expect(page.locator(".bulk .count")).to_have_text("ticked")
    box = button.bounding_box()
    assert 0 <= box["y"] <= box["y"] + box["height"] <= 500
    page.get_by_role("checkbox", name="Tick all tasks on this page").check()
    expect(page.get_by_role("checkbox", name="Task ", checked=True)).to_have_count(20)


@pytest.mark.parametrize(
    ("path", "width", "height", "most"),
    [
        ("/tasks", 1280, 800, 16),
        ("/tasks?queue=billing&tag=renewal", 1280, 800, 16),
        ("/tasks?queue=billing&tag=renewal", 360, 740, 4),
    ],
)
def test_a_list_shows_at_least_so_many_rows_at_once(  # noqa: PLR0917
    app, redis, site, look, path, width, height, most
):
    shop.fill(app, redis, waiting=200)
    page = look(site, path, width=width)
    page.set_viewport_size({"width": width, "height": height})
    boxes = [row.bounding_box() for row in page.locator(".list tbody tr:not(.day)").all()[:30]]
    assert sum(box["y"] + box["height"] <= height for box in boxes) >= most


def test_the_whole_overview_of_a_shop_is_seen_at_once(app, redis, site, look):
    shop.fill(app, redis)
    shop.set_rules(app)
    shop.scan_once(app)
    page = look(site)
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.evaluate("document.documentElement.scrollHeight") == 800
    for name in ("Queues", "Pauses", "Rules, next runs", "Scanners", "Next hour", "Last events"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_in_viewport(ratio=1)


def test_a_chart_says_what_a_bar_means_in_the_zone_and_words_of_the_viewer(filled, site, look):
    page = look(site)
    hour, week = page.locator("svg[data-of=hour]"), page.locator("svg[data-of=week]")
    titles = hour.locator("title").all_text_contents()
    assert titles
    for title in titles:
        assert re.fullmatch(r"\d+ tasks?, (today|tomorrow) \d\d:\d\d to \d\d:\d\d", title)
    label = page.locator("svg[data-of=hour] text.peak").text_content()
    spoken = page.locator("figcaption", has_text="Next hour").text_content()
    assert spoken.endswith(f"; the most, {label}.")
    # The marks are the full ten minutes, hours and days of the viewer's zone.
    marks = hour.locator(".marks text").all_text_contents()
    assert 5 <= len(marks) <= 7
    assert all(mark.endswith("0") for mark in marks)
    assert len(week.locator(".marks text").all()) in (6, 7)
    begin = page.evaluate(
        "new Date(document.querySelector('[data-of=hour] rect').dataset.begin)"
        ".toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'})"
    )
    assert f" {begin} to " in titles[0]
    follow(page, hour.locator("rect").first)
    expect(page.get_by_label("Without after:")).to_be_visible()


def test_the_rows_of_a_list_stand_below_the_days_of_the_viewer(app, site, look, redis):
    # 18:30 in London is midnight in Kolkata.
    for number, at in enumerate(("2100-01-01T18:29", "2100-01-01T18:30", "2100-01-02T18:29")):
        moment = datetime.fromisoformat(f"{at}+00:00").timestamp()
        app.send_task("t", task_id=f"task-{number}", delayq_at=moment)

    def rows(**options):
        page = look(site, "/tasks", **options)
        return [
            row.get_by_role("checkbox").get_attribute("aria-label")
            if row.get_by_role("checkbox").count()
            else row.text_content().strip().replace(",", "")
            for row in page.locator(".list tbody tr").all()
        ]

    tasks = [f"Task task-{number}" for number in range(3)]
    friday, saturday = "Friday 1 January 2100", "Saturday 2 January 2100"
    assert rows() == [friday, tasks[0], saturday, *tasks[1:]]
    london = rows(timezone_id="Europe/London")
    assert london == [friday, *tasks[:2], saturday, tasks[2]]
    friday, saturday = "Friday 01 January 2100", "Saturday 02 January 2100"
    assert rows(javascript=False) == [friday, *tasks[:2], saturday, tasks[2]]


# The texts that are cut: by an ancestor, by the screen, or by one another.
FIND_CUT = """
selector => {
  const cut = [];
  const of = one => {
    const range = document.createRange();
    range.selectNodeContents(one);
    return range.getBoundingClientRect();
  };
  for (const one of document.querySelectorAll(selector)) {
    const text = of(one);
    if (!text.width) continue;
    if (text.left < 0 || text.right > innerWidth) cut.push(`${one.outerHTML} beyond the screen`);
    for (let above = one; above !== document.body; above = above.parentElement) {
      if (getComputedStyle(above).overflowX === "visible") continue;
      const box = above.getBoundingClientRect();
      if (text.left < box.left - 1 || text.right > box.right + 1) cut.push(one.outerHTML);
    }
  }
  return cut;
}
"""
FIND_COLLISIONS = """
() => {
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const card = chart.closest(".card").getBoundingClientRect();
    const texts = [...chart.querySelectorAll("text")].map(
      one => [one.textContent, one.getBoundingClientRect()]);
    for (const [at, [text, box]] of texts.entries()) {
      if (box.left < card.left || box.right > card.right) found.push(`${text} beyond its card`);
      for (const [other, its] of texts.slice(at + 1)) {
        const apart = box.right <= its.left || its.right <= box.left
          || box.bottom <= its.top + 2 || its.bottom <= box.top + 2;
        if (!apart) found.push(`${text} on ${other}`);
      }
    }
  }
  return found;
}
"""
MATTERS = "button, .button, .badge, td.clock, td.soon, .day th, .chip > span, .what, .stats dd, h1"
HALVES = {"en-US": "AM|PM", "ar": "ص|م"}
LOCALES = ["en-US", "en-GB", "de", "ja", "ar"]


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("locale", LOCALES)
def test_in_no_language_is_a_text_that_matters_cut(app, redis, site, look, locale, width):  # noqa: PLR0917
    shop.fill(app, redis, waiting=60)
    shop.set_rules(app)
    page = look(site, width=width, locale=locale)
    for path in ("/", "/load?of=hour", "/load?of=day", "/load?of=week"):
        page.goto(path)
        assert page.locator(".chart .marks text").count() >= 3
        assert page.evaluate(FIND_COLLISIONS) == [], path
    for path in ("/", "/tasks?queue=billing", "/tasks?state=DEAD", TASK, "/rules", "/paused"):
        page.goto(path)
        inner = page.evaluate("document.documentElement.scrollWidth")
        assert inner <= width, f"{path} scrolls sideways"
        assert page.evaluate(FIND_CUT, MATTERS) == [], path
    page.goto("/tasks")
    page.get_by_role("checkbox", name="Task ").first.check()
    page.get_by_label("Change", exact=True).select_option("Reschedule")
    assert page.evaluate(FIND_CUT, MATTERS) == []
    for text in page.locator(".list td.clock").all_text_contents():
        assert re.search(HALVES.get(locale, r"\d$"), text)


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_make_no_list_wider_than_the_screen(app, site, look, width):
    app.send_task(
        "shop." + "a_long_name_" * 10,
        ("word" * 60,),
        {"a_long_name_" * 5: "x" * 5000},
        task_id="x" * 200,
        queue="queue_" * 20,
        delayq_at=FAR,
        delayq_key="key_" * 40,
        delayq_tags=["tag_" * 40, "b" * 100, "c"],
    )
    page = look(site, width=width)
    for path in ("/", "/tasks", f"/task?id={'x' * 200}", "/history", f"/tasks?tag={'tag_' * 40}"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.goto("/tasks")
    expect(page.locator(".args .size")).to_have_text(["240 characters", "5,000 characters"])


def test_the_search_and_its_button_are_in_line(filled, site, look):
    page = look(site, "/tasks?queue=billing")
    field, button = (
        there.bounding_box()
        for there in (page.locator(".search .field"), page.get_by_role("button", name="Search"))
    )
    assert (field["y"], field["height"]) == (button["y"], button["height"])


@pytest.fixture
def tab_to():
    """Press Tab until a place has the focus, which is seen at each stop; return how often."""

    def tab_to(page, there, most=60):
        for presses in range(1, most + 1):
            page.keyboard.press("Tab")
            # The search draws its focus around its chips, too.
            seen = page.evaluate(
                "getComputedStyle(document.activeElement.closest('.field')"
                " || document.activeElement).outline"
            )
            assert re.search("solid [12]px", seen), page.evaluate(
                "document.activeElement.outerHTML"
            )
            if there.evaluate("one => one === document.activeElement"):
                return presses
        raise AssertionError(f"Tab does not lead to {there}")

    return tab_to


def test_the_list_is_reached_within_eight_tabs(filled, site, look, tab_to):
    page = look(site, "/tasks?queue=billing&tag=renewal")
    presses = tab_to(page, page.get_by_role("link", name="Skip to the list"))
    page.keyboard.press("Enter")
    first = page.get_by_role("rowheader").get_by_role("link").first
    assert presses + tab_to(page, first) <= 8


def test_the_keyboard_alone_filters_opens_and_cancels(app, filled, site, look, tab_to):
    page = look(site, "/tasks")
    tab_to(page, page.get_by_role("link", name="Skip to the content"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_label("Search: "))
    page.keyboard.type("queue:billing")
    tab_to(page, page.get_by_role("button", name="Search"))
    with page.expect_navigation():
        page.keyboard.press("Space")
    tab_to(page, page.locator(f"[title='{shop.id_of(1)}']"))
    with page.expect_navigation():
        page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("button", name="Cancel"))
    page.keyboard.press("Space")

    says(page, f"task {shop.id_of(1)} was cancelled")
    assert app.delayq.get(shop.id_of(1)) is None


def test_a_day_of_the_load_begins_at_the_midnight_of_the_viewer(filled, site, look):
    page = look(site)
    follow(page, page.locator("#load").locator("xpath=../a"))
    follow(page, page.get_by_role("link", name="Earlier"))
    expect(page.locator("h1 time").first).to_contain_text("00:00")


HINT = """field => {
  const style = getComputedStyle(field), pen = document.createElement("canvas").getContext("2d");
  pen.font = style.font;
  const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return pen.measureText(field.placeholder).width <= room;
}"""


@pytest.mark.parametrize("path", ["/tasks", "/tasks?queue=billing", "/tasks?queue=billing&tag=x"])
def test_the_hint_of_the_search_is_whole_on_a_phone(filled, site, look, path):
    assert look(site, path, width=360).get_by_label("Search:").evaluate(HINT)


def test_a_wide_list_has_whole_ids(filled, site, look):
    assert look(site, "/tasks", width=1920).locator("td.id .more").first.is_visible()
    assert look(site, "/tasks", width=1600).locator("td.id .more").first.is_hidden()
