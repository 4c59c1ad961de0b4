"""`delayq status`: what waits, and whether anybody will hand it over."""

import json
from contextlib import closing

from tests.app.support import FAR, LONG_AGO, hand_over_until_dead

NO_SCANNER = "No scanner is alive: nothing will run until a worker of this app is started."


def test_it_counts_and_warns_in_words_when_no_scanner_is_alive(app, said):
    app.send_task("t", delayq_at=FAR)
    app.send_task("t", delayq_at=FAR + 1)

    assert said("status") == [
        "scheduled  2",
        "overdue    0",
        "refused    0",
        "paused     0",
        "in flight  0",
        "dead       0",
        "scanners   0",
        "next due   2100-01-01T00:00:00+00:00",
        NO_SCANNER,
    ]


def test_with_a_scanner_alive_there_is_no_warning(app, said):
    with closing(app.delayq.services.engines()[0]) as engine:
        engine.hand_over()

        lines = said("status")

    assert "scanners   1" in lines
    assert NO_SCANNER not in lines


def test_a_scanner_that_left_is_not_alive(app, said):
    with closing(app.delayq.services.engines()[0]) as engine:
        engine.hand_over()
        engine.leave()

    assert said("status")[-1] == NO_SCANNER


def test_an_empty_store_has_nothing_next(said):
    assert "next due   -" in said("status")


def test_what_is_dead_is_counted(app, redis, said):
    redis.set("broken", "not a list")
    app.send_task("t", queue="broken", delayq_at=LONG_AGO)
    hand_over_until_dead(app.delayq, redis)

    assert "dead       1" in said("status")


def test_json_is_one_object_and_nothing_else(app, said):
    app.send_task("t", delayq_at=FAR)

    [line] = said("status", "--json")

    assert json.loads(line) == {
        "scheduled": 1,
        "overdue": 0,
        "refused": 0,
        "paused": 0,
        "in_flight": 0,
        "dead": 0,
        "scanners": 0,
        "next_due": "2100-01-01T00:00:00+00:00",
        "pauses": [],
    }
