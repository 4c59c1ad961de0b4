"""What the figures of a measurement mean, in words."""

from __future__ import annotations

from collections.abc import Iterator

from .measurements import Figures, Limit, Link, Measure


def rows(figures: Figures) -> Iterator[tuple[str, str]]:
    """The table: a name and a text for each figure."""
    link, one, bulk, hand_over = figures.link, figures.one, figures.bulk, figures.hand_over
    yield "round trip", f"{_ms(link.median)}; one in a hundred takes over {_ms(link.p99)}"
    yield "schedule", f"{_about(one.rate)} tasks/s one by one, {_about(bulk.rate)} in bulk"
    yield "cancel", f"{_about(figures.cancel.rate)} tasks/s one by one"
    yield "hand over", f"{_about(hand_over.rate)} tasks/s; longest call {_ms(hand_over.longest)}"
    if figures.memory is not None:
        yield "memory", f"{figures.memory:.0f} bytes of Redis for a waiting task"


def sentences(figures: Figures) -> Iterator[str]:
    """What to expect, and what limits."""
    link, hand_over, bulk = figures.link, figures.hand_over, figures.bulk
    yield (
        f"One scanner hands over about {_about(hand_over.rate)} tasks/s {_where(figures)}. "
        f"{_limit(hand_over, link)}"
    )
    yield (
        f"schedule_many holds about {_about(bulk.rate)} tasks/s from one process. "
        f"{_limit(bulk, link)}"
    )
    yield (
        f"A single call takes about {_ms(figures.one.call)} to schedule a task, without what "
        f"Celery does before, and {_ms(figures.cancel.call)} to cancel one. "
        f"{_limit(figures.one, link)}"
    )
    if figures.memory is not None:
        yield (
            "A million waiting tasks of this size need about "
            f"{_about(figures.memory)} MB of Redis's memory."
        )
    if not figures.direct:
        yield (
            "The tasks of this app go on to another broker, at that broker's pace. It was not "
            "measured: all of this is about the store's Redis."
        )


def _where(figures: Figures) -> str:
    return "here" if figures.direct else "to lists of the store's Redis"


def _limit(measure: Measure, link: Link) -> str:
    return f"What limits: {_LIMITS[measure.limit(link)](measure, link)}."


def _redis(measure: Measure, _: Link) -> str:
    if measure.redis_busy is None:
        return "Redis's CPU, by all signs (it does not tell how busy it was)"
    return f"Redis's CPU (it was busy {measure.redis_busy:.0%} of the time)"


def _round_trip(measure: Measure, link: Link) -> str:
    return f"the round trip ({_ms(link.median)} of the {_ms(measure.call)} of a call)"


def _bandwidth(measure: Measure, link: Link) -> str:
    speed = (link.bytes_per_second or 0) / 1e6
    return f"the bandwidth (about {_about(speed)} MB/s; a call sends {measure.size / 1e3:.0f} kB)"


def _caller(measure: Measure, _: Link) -> str:
    redis = "" if measure.redis_busy is None else f", Redis {measure.redis_busy:.0%}"
    return f"this process (it was busy {measure.caller_busy:.0%} of the time{redis})"


def _others(measure: Measure, _: Link) -> str:
    return (
        "other work on Redis or on these machines (Redis was busy "
        f"{measure.redis_busy:.0%} of the time, this process {measure.caller_busy:.0%})"
    )


_LIMITS = {
    Limit.REDIS: _redis,
    Limit.ROUND_TRIP: _round_trip,
    Limit.BANDWIDTH: _bandwidth,
    Limit.CALLER: _caller,
    Limit.OTHERS: _others,
}


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _about(number: float) -> str:
    """A number to two digits: more would not be the same the next time."""
    return f"{float(f'{number:.2g}'):,.10g}"
