"""`delayq doctor`: whether Redis has room for what `delayq_remember` keeps."""

import pytest

from celery_delayq.contrib.care.doctor import examine

MB = 1_000_000
SAID = (
    "with this delayq_remember, 2,000,000 tasks that left may take 240.0 MB, more than this Redis "
    "has: {}; when it is full, nothing can be scheduled"
)


def said_of(app):
    return [
        (line.level, line.found, line.advice)
        for line in examine(app.delayq.services)
        if "delayq_remember" in line.found
    ]


@pytest.mark.parametrize(
    ("most", "shown"), [(239 * MB, "239.0 MB"), (240 * MB, None), (0, None)], ids=str
)
def test_it_warns_if_what_is_remembered_may_fill_redis(start_redis, delayq_app, most, shown):
    app = delayq_app(start_redis("--maxmemory", str(most)).url())

    advice = "set a smaller number of tasks, or raise maxmemory"
    assert said_of(app) == ([("warning", SAID.format(shown), advice)] if shown else [])


def test_of_several_shards_on_one_redis_it_counts_all(start_redis, delayq_app):
    url = start_redis("--maxmemory", str(239 * MB)).url()
    app = delayq_app(url, delayq_shards=3)

    [(_, found, _)] = said_of(app)
    assert found == SAID.format("239.0 MB")
