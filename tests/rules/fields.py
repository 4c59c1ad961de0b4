"""The fields of entries, as the table of fields.md has them, and as their classes do."""

import inspect
import re
from pathlib import Path

TEXT = Path(__file__).with_name("fields.md")


def listed(of):
    """The fields that the table has of a class, or of settings."""
    rows = (line.split("|")[1:3] for line in TEXT.read_text("utf-8").splitlines() if "|" in line)
    named = (fields for first, fields, *_ in rows if first.strip().strip("`") == of)
    return {field for fields in named for field in re.findall(r"`(\w+)`", fields)}


def fields_of(kind, *more):
    """The arguments of a class, and those of the classes to which it passes its others on."""
    found = [
        parameter
        for one in (kind, *more)
        for parameter in inspect.signature(one).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    return {parameter.name for parameter in found}
