"""What tests do with a page: press a button, and wait for the answer."""

import pytest

either_way = pytest.mark.parametrize("javascript", [True, False], ids=["script", "no script"])


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def unfold(page, name):
    page.locator("summary").get_by_text(name, exact=True).first.click()


def says(page, said):
    """Wait until the page says this, as an answer."""
    page.get_by_role("status").get_by_text(said, exact=True).wait_for()
