"""The check of the built site, which ``celery_delayq/docs/build`` makes."""

from tests.readme.site import dead

PAGE = """
<h1 id="top">A page</h1>
<a href="#top"></a> <a href="/"></a> <a href="../b/#two%20words"></a> <img src="../seen.png">
<a href="https://example.com/nowhere"></a> <a href="mailto:a@example.com"></a>
<a href="../c/"></a> <a href="../b/#none"></a> <a href="#bottom"></a>
<img src="unseen.png"> <a href="/c.css"></a>
"""


def test_each_dead_link_and_picture_of_a_site_is_named_with_its_page(tmp_path):
    for folder, text in {"a": PAGE, "b": "<h1 id='two words'></h1>", ".": "<p>"}.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "index.html").write_text(text, "utf-8")
    (tmp_path / "seen.png").touch()

    found = [f"a/index.html: {each}" for each in ("../c/", "../b/#none", "#bottom")]
    assert list(dead(tmp_path)) == [*found, "a/index.html: unseen.png", "a/index.html: /c.css"]
