"""Count the words of the Markdown: python -m tests.readme.words

Code blocks, link addresses and the rules of tables do not count.
"""

from __future__ import annotations

import re
import sys

from tests.readme.document import DOCUMENTS


def words(text: str) -> int:
    """The number of words in *text*, without its fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    return sum(bool(re.search(r"\w", word)) for word in prose.split())


def main() -> None:
    counts = {name: words(one.text) for name, one in DOCUMENTS.items()}
    for name, count in counts.items():
        sys.stdout.write(f"{count:7,}  {name}\n")
    sys.stdout.write(f"{sum(counts.values()):7,}\n")


if __name__ == "__main__":
    main()
