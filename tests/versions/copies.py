"""Copies of the package that represent another version: a few words in them are changed."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import celery_delayq

PACKAGE = Path(celery_delayq.__file__).parent
HERE = Path(__file__).parent

Changes = Mapping[str, Mapping[str, str]]

#: The same, but each script has another SHA.
OTHER_SCRIPTS: Changes = {
    "core/store/lua/prelude/record.lua": {
        "local function clock_us()\n": "local function clock_us()\n  local later = true\n",
        "local function header_end_of(record)\n": (
            "local function header_end_of(record)\n  local later = true\n"
        ),
    }
}
#: It writes records of format 2, and reads 1 as well.
OTHER_RECORDS: Changes = {
    "core/store/lua/prelude/record.lua": {
        "local FORMAT = '1'": "local FORMAT = '2'",
        "if sub(record, 1, 1) ~= FORMAT then": (
            "if sub(record, 1, 1) ~= FORMAT and sub(record, 1, 1) ~= '1' then"
        ),
    }
}
#: It has another layout of keys.
OTHER_LAYOUT: Changes = {"core/store/keys.py": {'SCHEMA = "1"': 'SCHEMA = "2"'}}


def make(folder: Path, changes: Changes) -> Path:
    """Make a copy in *folder*, which must come first on the path; return the folder."""
    copy = folder / "celery_delayq"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, words in changes.items():
        text = (copy / name).read_text("utf-8")
        for ours, theirs in words.items():
            assert text.count(ours) == 1, f"{name} has {ours!r} no more, or more than once"
            text = text.replace(ours, theirs)
        (copy / name).write_text(text, "utf-8")
    return folder


def command(script: str, *words: str) -> list[str]:
    return [sys.executable, str(HERE / script), *words]


def environment(copy: Path | None) -> dict[str, str]:
    """The environment of a process with this copy, or with the package itself."""
    first = PACKAGE.parent if copy is None else copy
    return {"PYTHONPATH": f"{first}{os.pathsep}{PACKAGE.parent}"}
