"""The class ``DelayQ`` that type checkers see, written from the leaves' own list.

core/leaves.py --parents--> celery_delayq/__init__.py

python -m tests.types.face    writes it anew
"""

import re
from pathlib import Path

import celery_delayq
from celery_delayq.core import leaves

FACE = Path(celery_delayq.__file__)
LEAVES = re.compile(r"(    from \.contrib\..*\n)+")
CLASS = re.compile(r"class DelayQ\([^)]*\):")


def written() -> str:
    """The text of the package's ``__init__.py``, with the parents of the class ``DelayQ``."""
    text = FACE.read_text("utf-8")
    package = f"{celery_delayq.__name__}.contrib."
    parents = [(one.__module__.partition(package)[2], one.__name__) for one in leaves.methods()]
    imports = "".join(
        f"    from .contrib.{module} import {name}\n" for module, name in parents if module
    )
    text = LEAVES.sub(imports, text, count=1)
    bases = "".join(f"        {name},\n" for name in (*(name for _, name in parents), "_DelayQ"))
    return CLASS.sub(f"class DelayQ(\n{bases}    ):", text)


if __name__ == "__main__":
    FACE.write_text(written(), "utf-8")
