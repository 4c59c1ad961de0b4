"""The README and the project's URLs for a package index, where a link into the tree leads nowhere.

    DELAYQ_REPOSITORY --> link    README.md's [x](docs/a.md) --> ADDRESS/blob/v1.0.0/docs/a.md
                      --> picture ![x](a.svg)                --> ADDRESS/raw/v1.0.0/a.svg
    not set           --> README.md as it is, and no URLs

Hatchling runs it whenever it builds. A wheel that is built from an sdist has what the sdist has.
"""

import os
import re
from functools import partial
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

NAME = "DELAYQ_REPOSITORY"
ADDRESS = re.compile(r"https://[\w.-]+(/[\w.~-]+)+")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# [words](target), ![words](target), [![words](target)](target), [name]: target
INLINE = re.compile(r"(!\[[^\]]*|)(\]\()([^)\s]+)")
NAMED = re.compile(r"^()(\[[^\]]+\]: )(\S+)$", re.MULTILINE)


class Metadata(MetadataHookInterface):
    """Hatchling's hook."""

    def update(self, metadata: dict) -> None:
        address = os.environ.get(NAME, "")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        if address:
            if not ADDRESS.fullmatch(address):
                raise ValueError(f"{NAME} is {address!r}; expected https://HOST/OWNER/NAME")
            at = f"v{metadata['version']}"
            text = absolute(text, address, at, Path(self.root))
            metadata["urls"] = urls(address, at)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, address: str, at: str, root: Path) -> str:
    """Return Markdown with the address in front of each target that is a file of the tree.

    Args:
        text: README.md.
        address: The repository's.
        at: The tag with this version.
        root: The project's folder.
    """

    def lead(found: re.Match) -> str:
        picture, words, target = found.groups()
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        file = target.partition("#")[0]
        kind = "raw" if picture else "tree" if file and (root / file).is_dir() else "blob"
        place = target if file else f"README.md{target}"
        return f"{picture}{words}{address}/{kind}/{at}/{place.removeprefix('./')}"

    parts = FENCE.split(text)
    for number in range(0, len(parts), 2):  # code stands between
        for pattern in (INLINE, NAMED):
            parts[number] = pattern.sub(lead, parts[number])
    return "".join(parts)


def urls(address: str, at: str) -> dict[str, str]:
    """Return the project's URLs."""
    tree = partial("{}/blob/{}/{}".format, address, at)
    return {
        "Documentation": tree("celery_delayq/docs/index.md"),
        "Changelog": tree("CHANGELOG.md"),
        "Repository": address,
        "Issues": f"{address}/issues",
    }
