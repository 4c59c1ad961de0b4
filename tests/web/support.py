"""Helpers for pages: they follow links to the last one, and change many tasks."""

import html
import re

import pytest

# Links that lead on.
NEXT = 'rel="next" href="([^"]*)"'
LOOK_ON = 'href="([^"]*)"[^>]*>Look on'
FURTHER = 'href="([^"]*)" data-follow'
MOST = 200
FORGED = (
    "these pages did not make this link for you, or the store was emptied or resharded since; "
    "nothing was done: begin anew with the list of tasks"
)


def walk(browser, page, *links):
    """Yield this page, and each to which one of the *links* leads on."""
    for _ in range(MOST):
        yield page
        to = next(filter(None, map(page.url, links)), None)
        if not to:
            return
        page = browser.get(to)
    pytest.fail("the pages have no end")


def left(app):
    return [task.id for task in app.delayq.tasks()]


def form_of(browser, task_id="a"):
    """The URL to which the changes of a task are posted."""
    return browser.get("/task", id=task_id).action_with("Cancel")


def ticks(page):
    """The values of the checkboxes, by id."""
    found = re.findall(r'name="one" value="([^"]*)" aria-label="Task ([^"]*)"', page.html)
    return {task_id: value for value, task_id in found}


def chosen(browser, filters, **form):
    """Choose all that match a filter; return the first page that counts them."""
    action = browser.get("/tasks", **filters).url(r'formaction="([^"]*)"')
    return browser.get(browser.post(action, **form).location)


def counted(browser, filters, **form):
    """Count all that match; return the page that offers to change them."""
    [*_, page] = walk(browser, chosen(browser, filters, **form), FURTHER)
    return page


def worked(browser, page, ends=lambda page: "<form" not in page.html):
    """Press the button of each step; return the last page, and how many steps it took."""
    for steps in range(MOST):
        if ends(page):
            return page, steps
        page = browser.get(browser.post(page.action_with("foot-buttons")).location)
    pytest.fail("the work has no end")


def field(page, name):
    """The tag of a field, with the text within it."""
    found = re.search(rf'<(input|textarea|select) [^>]*name="{name}"[^>]*>([^<]*)', page.html)
    return html.unescape(found[0])


def is_wrong(page, name):
    """Whether the sentence stands beside this field, and the field refers to it."""
    tag = field(page, name)
    beside = re.search(r'aria-describedby="[^"]*?([\w-]+-error)" aria-invalid="true"', tag)
    return bool(beside) and f'<p role="alert" id="{beside[1]}"' in page.html
