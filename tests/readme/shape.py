"""The shape of an output: without the parts that differ from run to run."""

import re

_DIFFERS = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"\b\d+\.\d+(e-\d+)?s\b", "<seconds>"),
    (r"\b[\d,]+ (d|h|min|s)( \d+ (h|min|s))?\b", "<span>"),
    (r" {2,}", "  "),  # columns are as wide as the span of a day
    (r"\x1b\[[0-9;]*m", ""),
    (r"\bgen\d+@[\w.-]+", "<origin>"),
    (r"@[\w.-]+", "@<host>"),
    (r"redis://[^/\s]+", "redis://<host>"),
    (r"\d", "0"),
)


def shape(text: str) -> str:
    """*text* with ids, times and hosts made alike; every digit is 0."""
    for pattern, alike in _DIFFERS:
        text = re.sub(pattern, alike, text)
    return text
