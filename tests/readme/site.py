"""Names in a built site without a target: pages, sections, pictures, styles.

python -m tests.readme.site FOLDER    prints them, and fails if there are any
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """One page's anchors, and what it links to or shows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.targets.append(value)


def dead(site: Path) -> Iterator[str]:
    """Yield each link and picture that leads to nothing in the site, with its page."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for target in page.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            place = site if url.path.startswith("/") else path.parent
            at = (place / unquote(url.path).lstrip("/")).resolve() if url.path else path
            found = at / "index.html" if at.is_dir() else at
            anchors = pages[found].anchors if found in pages else {url.fragment}
            if not found.is_file() or (url.fragment and unquote(url.fragment) not in anchors):
                yield f"{path.relative_to(site)}: {target}"


if __name__ == "__main__":
    lost = list(dead(Path(sys.argv[1]).resolve()))
    print(*lost, sep="\n", end="\n" if lost else "")
    sys.exit(bool(lost))
