"""The buttons of recurring rules, pressed in a browser."""

from tests.browser.support import either_way, follow, press, says


def waiting(app):
    return [task.id for task in app.delayq.tasks(tag="every:digest")]


@either_way
def test_each_button_of_a_rule_can_be_pressed(app, site, look, javascript):
    app.delayq.every("digest", app.tasks["shop.remind"].s(1), "0 9 * * *", tz="Europe/Berlin")
    [run] = waiting(app)
    page = look(site, "/rules", javascript=javascript)

    press(page, "Skip next: digest")
    says(page, f"rule digest: the next run, task {run}, is cancelled")
    press(page, "Pause: digest")
    says(page, "rule digest is paused")
    press(page, "Resume: digest")
    says(page, "rule digest is resumed")
    press(page, "Run now: digest")
    follow(page, page.get_by_role("link", name="That run"))
    follow(page, page.get_by_role("link", name="digest", exact=True))
    press(page, "Remove: digest")
    assert app.delayq.rule("digest")
    press(page, "Remove rule digest")
    says(page, "rule digest is removed")

    assert app.delayq.rules() == []
