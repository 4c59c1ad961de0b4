"""The pages refuse a foreign page that a user's browser has open beside them.

http://evil.example --form, frame, link, script--> the pages: mounted, or by the command
"""

import html

import pytest
from playwright.sync_api import Error, expect
from werkzeug.wrappers import Response

from celery_delayq.contrib.web import wsgi
from tests.browser.support import press, says
from tests.cli.conftest import sigint
from tests.web.conftest import browse, browser
from tests.web.support import counted
from tests.web.test_mounted import start

__all__ = ["browse", "browser", "sigint", "start"]

# A form for each change.
CHANGES = {
    "/task?id=a": {"action": "cancel"},
    "/selected": {"action": "cancel", "one": " a", "sure": "1"},
    "/all": {"action": "cancel"},
    "/work?action=cancel&cursor=": {},
    "/undo": {"one": "gone"},
    "/paused": {"action": "pause", "kind": "everything", "sure": "1"},
}


@pytest.fixture
def command(app, start):
    """The address of the command's pages; they have the tasks of *app*."""
    _, address = start()
    return address


@pytest.fixture(params=["site", "command"])
def target(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def evil(serve):
    """Serve a foreign page; return its address: ``evil("<form>")``."""

    def evil(body):
        page = Response(f"<!doctype html><title>evil</title>{body}", mimetype="text/html")
        return serve(page).replace("127.0.0.1", "evil.example")

    return evil


def form_to(address, fields, label="Win"):
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    action = html.escape(address)
    return f'<form method="post" action="{action}">{inputs}<button>{label}</button></form>'


def test_a_form_of_another_site_changes_nothing(app, target, evil, look, scheduled):
    before = scheduled("a")
    forms = [form_to(target + path, fields, path) for path, fields in CHANGES.items()]
    address = evil("".join(forms))
    page = look(address, allows=["403"])

    for path in CHANGES:
        press(page, path)
        expect(page.get_by_role("alert")).to_contain_text("this form was not sent from these pages")
        page.goto(address)

    assert app.delayq.get("a") == before
    assert app.delayq.pauses() == []


def test_a_form_without_an_origin_changes_nothing(app, target, evil, look, scheduled):
    before = scheduled("a")
    form = form_to(f"{target}/task?id=a", {"action": "cancel"})
    inside = html.escape(form.replace("<form", "<form target=_blank"))
    rights = "allow-forms allow-popups allow-popups-to-escape-sandbox"
    page = look(evil(f'<iframe sandbox="{rights}" srcdoc="{inside}"></iframe>'), allows=["403"])

    with page.expect_popup() as opened:
        press(page.frame_locator("iframe"), "Win")

    answer = opened.value.get_by_role("alert")
    expect(answer).to_contain_text("this form was not sent from these pages")
    assert app.delayq.get("a") == before


def test_a_script_of_another_site_reads_and_changes_nothing(app, target, evil, look, scheduled):
    before = scheduled("a")
    page = look(evil(""), allows=["ERR_FAILED", "CORS", "NotSameOrigin"])
    for options in ("", ", {method: 'POST', mode: 'no-cors', body: new URLSearchParams(FORM)}"):
        code = f"fetch('{target}/task?id=a'{options.replace('FORM', repr('action=cancel'))})"
        with pytest.raises(Error, match="Failed to fetch"):
            page.evaluate(f"{code}.then(one => one.text())")
    assert app.delayq.get("a") == before


def test_a_form_to_a_plain_name_is_refused_by_its_origin(app, site, evil, look, scheduled):
    """Over http, a browser says where a form comes from only in Origin."""
    before, site = scheduled("a"), site.replace("127.0.0.1", "site.example")
    address = evil(form_to(f"{site}/task?id=a", {"action": "cancel"}))
    page = look(address, allows=["403", "Cross-Origin-Opener-Policy"])

    with page.expect_request("**/task?*") as sent:
        press(page, "Win")
    expect(page.get_by_role("alert")).to_contain_text("this form was not sent from these pages")
    assert "sec-fetch-site" not in sent.value.all_headers()
    assert app.delayq.get("a") == before

    page.goto(f"{site}/task?id=a")
    press(page, "Cancel")
    says(page, "task a was cancelled")


def test_no_other_site_shows_a_page_in_a_frame(target, evil, look):
    page = look(evil(f'<iframe src="{target}/tasks"></iframe>'), allows=["frame"])
    page.wait_for_function("frames.length == 1")
    assert page.frames[1].url.startswith("chrome-error:")


def test_a_foreign_link_leads_to_a_step_and_does_not_take_it(  # noqa: PLR0917
    app, browser, site, evil, look, scheduled
):
    scheduled("a")
    step = counted(browser, {}, action="cancel").action_with("<button")
    page = look(evil(f'<a href="{site}{html.escape(step)}">Look</a>'))
    page.get_by_role("link", name="Look").click()
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert app.delayq.get("a") is not None


def test_a_foreign_name_for_this_machine_is_refused(app, command, serve, look, scheduled):
    """By DNS, a foreign page's own name can lead to loopback, and be of one origin with it."""
    scheduled("secret")
    hosts = serve(wsgi(app.delayq, allow=lambda _: "write", hosts=["localhost", "127.0.0.1"]))

    for address in (hosts, command):
        assert "secret" in look(address, "/tasks").content()
        port = address.rpartition(":")[2]
        page = look(
            f"http://evil.example:{port}", allows=["421", "Cross-Origin-Opener-Policy", "MIME type"]
        )
        for path in ("/", "/tasks", "/task?id=secret", "/static/page.js"):
            assert page.goto(path).status == 421
            assert "secret" not in page.locator("main").inner_text()


# A script's attempts on a page, and the part of the policy that forbids each.
ATTEMPTS = {
    "script-src-elem": "add('script', {text: RUN}), add('script', {src: EVIL})",
    "script-src-attr": "document.body.setAttribute('onclick', RUN), document.body.click()",
    "script-src": "setTimeout(RUN, 0)",
    "style-src-attr": "document.body.setAttribute('style', 'color: red')",
    "style-src-elem": "add('style', {textContent: 'body { color: red }'})",
    "img-src": "new Image().src = EVIL",
    "connect-src": "fetch(EVIL).catch(() => 0)",
    "frame-src": "add('iframe', {src: EVIL})",
    "base-uri": "add('base', {href: EVIL})",
    "form-action": "add('form', {id: 'one', action: EVIL}), document.forms.one.submit()",
}
BEGIN = """
const RUN = "window.pwned = 1";
const add = (tag, facts) => document.body.append(Object.assign(document.createElement(tag), facts));
window.told = new Set();
document.addEventListener("securitypolicyviolation", one => told.add(one.effectiveDirective));
"""


def test_the_policy_forbids_a_script_all_that_the_pages_do_not_need(target, evil, look):
    page = look(target, "/tasks", allows=["Content Security Policy"])
    page.evaluate(f"EVIL => {{ {BEGIN} {'; '.join(ATTEMPTS.values())} }}", evil(""))
    page.wait_for_function("count => told.size >= count", arg=len(ATTEMPTS))
    assert set(page.evaluate("[...told]")) == set(ATTEMPTS)
    assert page.evaluate("window.pwned") is None
    assert page.url == f"{target}/tasks"
