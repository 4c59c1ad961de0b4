"""The class ``DelayQ`` that type checkers see, written from the leaves' own list.

core/leaves.py --methods--> celery_delayq/__init__.py

python -m tests.types.face    writes it anew
"""

import re
from collections import defaultdict
from pathlib import Path

import celery_delayq
from celery_delayq.core import leaves

FACE = Path(celery_delayq.__file__)
IMPORTS = re.compile(r"(    from \..*\n)+")
WRITTEN = re.compile(r"    from \.(contrib\.\S+|operations) ")
METHODS = re.compile(r"(?<=        # Written by python -m tests\.types\.face\.\n)(        .*\n)+")


def written() -> str:
    """The text of the package's ``__init__.py``, with the methods of the class ``DelayQ``."""
    methods, modules = [], defaultdict(set)
    for name, method in leaves.methods().items():
        package, _, module = method.module.rpartition(".")
        modules[package.removeprefix(celery_delayq.__name__)].add(module)
        # A method that has its module's name comes behind those of other names.
        methods.append((name == module, module, f"        {name} = {module}.{name}\n"))
    text = FACE.read_text("utf-8")
    imports = [
        *(line for line in IMPORTS.search(text)[0].splitlines(True) if not WRITTEN.match(line)),
        *(f"    from {place} import {', '.join(sorted(of))}\n" for place, of in modules.items()),
    ]
    text = IMPORTS.sub("".join(sorted(imports)), text, count=1)
    return METHODS.sub("".join(line for *_, line in sorted(methods)), text)


if __name__ == "__main__":
    FACE.write_text(written(), "utf-8")
